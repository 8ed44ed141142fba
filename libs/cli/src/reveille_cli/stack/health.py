"""Asks a service, by the standard gRPC health protocol, whether it serves."""

from __future__ import annotations

import socket
from enum import StrEnum

import grpc
from grpc_health.v1 import health_pb2

# A channel remembers refusals and backs off; each probe brings its own.
_CHANNEL_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


class Health(StrEnum):
    """What a probe found."""

    SERVING = "serving"
    NOT_SERVING = "not serving"
    UNREACHABLE = "unreachable"


def probe(address: str, timeout: float = 2.0) -> Health:
    """Ask once."""
    host, _, port = address.rpartition(":")
    try:
        # Cheap, and spares a channel for each look at a service that is still importing.
        socket.create_connection((host, int(port)), timeout).close()
    except OSError:
        return Health.UNREACHABLE
    with grpc.insecure_channel(address, options=_CHANNEL_OPTIONS) as channel:
        try:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            answer = check(health_pb2.HealthCheckRequest(), timeout=timeout)
        except grpc.RpcError:
            return Health.UNREACHABLE
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return Health.SERVING
    return Health.NOT_SERVING
