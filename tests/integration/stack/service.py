"""A stand-in for a service: serves gRPC health, says what it was given, and ends as it is told."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
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
    stop = threading.Event()
    if "STUBBORN" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
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
    # A signal may reach another thread first; this one then looks by itself.
    while not stop.wait(0.1):
        pass
    server.stop(0).wait()
    say("drained")
    return int(os.environ.get("LAST_CODE", "0"))


if __name__ == "__main__":
    sys.exit(main())
