"""Who published which rule, and what each trigger produced."""
