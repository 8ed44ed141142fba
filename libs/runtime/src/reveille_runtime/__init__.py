"""Domain-free mechanisms shared by the four services."""
