"""The nouns of the command, each a declaration over one runner and one printer."""
