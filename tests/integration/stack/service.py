"""A stand-in for a service: serves gRPC health, says what it was given, and ends as it is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    say(json.dumps(dict(os.environ)))
    if "EXIT_CODE" in os.environ:
        say("cannot go on")
        return int(os.environ["EXIT_CODE"])
    # Blocked in every thread that follows, and waited for by this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    servicer = health.HealthServicer()
    status = "NOT_SERVING" if "NEVER_READY" in os.environ else "SERVING"
    servicer.set("", health_pb2.HealthCheckResponse.ServingStatus.Value(status))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_insecure_port(os.environ["REVEILLE_LISTEN"])
    server.start()
    say("serving")
    if "SAY" in os.environ:
        say(os.environ["SAY"])
    while True:
        signal.sigwait({signal.SIGTERM})
        if "STUBBORN" not in os.environ:
            break
    server.stop(0).wait()
    say("drained")
    return int(os.environ.get("LAST_CODE", "0"))


if __name__ == "__main__":
    sys.exit(main())
