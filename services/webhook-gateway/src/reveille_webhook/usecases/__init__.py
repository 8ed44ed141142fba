"""What the gateway does, one module for each thing; a use case opens its transactions."""
