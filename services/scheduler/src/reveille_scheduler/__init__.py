"""What is due, and who executes it."""
