"""A `sitecustomize` that sets a process's own clock wrong by REVEILLE_TEST_SKEW seconds."""

from __future__ import annotations

import os
import time

_SKEW = float(os.environ.get("REVEILLE_TEST_SKEW", "0"))
_time, _time_ns = time.time, time.time_ns


def _wrong() -> float:
    return _time() + _SKEW


def _wrong_ns() -> int:
    return _time_ns() + int(_SKEW * 1e9)


time.time, time.time_ns = _wrong, _wrong_ns
