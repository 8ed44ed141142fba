"""The gRPC servicers and what stands between messages and values."""
