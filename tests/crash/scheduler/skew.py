"""A `sitecustomize` that sets a process's own clock wrong by REVEILLE_TEST_SKEW seconds.

gRPC turns a timeout into an instant by Python's clock and compares that with the machine's: on a
machine whose clock is wrong, both are. So its modules are told the machine's time here, or every
call of a process that is behind would be over before it began.
"""

from __future__ import annotations

import os
import sys
import time

_SKEW = float(os.environ.get("REVEILLE_TEST_SKEW", "0"))
_time, _time_ns = time.time, time.time_ns


def _wrong() -> float:
    asker = str(sys._getframe(1).f_globals.get("__name__"))
    return _time() if asker.partition(".")[0] == "grpc" else _time() + _SKEW


def _wrong_ns() -> int:
    return _time_ns() + int(_SKEW * 1e9)


time.time, time.time_ns = _wrong, _wrong_ns
