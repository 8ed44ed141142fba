"""Why an agent was woken, and what each attempt did."""
