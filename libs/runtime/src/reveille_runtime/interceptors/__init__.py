"""Our interceptors for grpc.aio: telemetry → errors → deadline → access → validation."""
