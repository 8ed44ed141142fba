"""The loops that take deliveries further."""
