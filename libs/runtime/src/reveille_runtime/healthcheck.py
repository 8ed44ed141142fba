"""Ask a server for its health: `python -m reveille_runtime.healthcheck [host:port]`.

Exit 0 when it serves, 1 when it does not or cannot be reached, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


def check(address: str, service: str = "", timeout: float = 3.0) -> str:
    """Return the status's name, or UNREACHABLE with the reason."""
    options = (("grpc.enable_http_proxy", 0),)
    with grpc.insecure_channel(address, options=options) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout)
        except grpc.RpcError as error:
            return f"UNREACHABLE ({error.code().name}: {error.details()})"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


def main(argv: Sequence[str] | None = None) -> int:
    """Check one address and print what it said."""
    parser = argparse.ArgumentParser(
        prog="python -m reveille_runtime.healthcheck",
        description="Ask a gRPC server for its health.",
    )
    parser.add_argument(
        "address",
        nargs="?",
        default=os.environ.get("REVEILLE_LISTEN", "127.0.0.1:50051"),
        help="host:port (default: REVEILLE_LISTEN)",
    )
    parser.add_argument("--service", default="", help="one service's full name (default: all)")
    parser.add_argument("--timeout", type=float, default=3.0, help="seconds (default: 3)")
    arguments = parser.parse_args(argv)
    # A server that listens on every address is asked on the loopback one.
    address = str(arguments.address).replace("0.0.0.0:", "127.0.0.1:", 1)
    status = check(address, arguments.service, arguments.timeout)
    sys.stderr.write(f"{address}: {status}\n")
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
