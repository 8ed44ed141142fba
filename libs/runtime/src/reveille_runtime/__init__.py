"""Domain-free mechanisms shared by the four services."""

from __future__ import annotations

import os

# gRPC's core writes notes about every closed connection to stderr, past our logs; it reads this
# when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
