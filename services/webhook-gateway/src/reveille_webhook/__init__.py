"""What came in from outside."""
