"""The gRPC surface: messages in, messages out."""
