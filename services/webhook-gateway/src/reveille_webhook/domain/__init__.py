"""Pure rules of the gateway: bytes and values in, values out."""
