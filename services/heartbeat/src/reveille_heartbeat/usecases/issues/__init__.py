"""Issues: what is to be done, who owns it, what it waits for, and what follows when it moves."""
