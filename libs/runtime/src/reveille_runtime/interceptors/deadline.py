"""Deadlines: what the caller has left is what we may spend on calls of our own."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace

from reveille_runtime.interceptors.chain import Done, OutgoingCall, RpcCall

DEFAULT_TIMEOUT = 10.0
# Kept back from a caller's deadline, so that our answer to a late reply still arrives.
MARGIN = 0.05
_SHORTEST = 0.001

_DEADLINE: ContextVar[float | None] = ContextVar("reveille_deadline", default=None)


def remaining() -> float | None:
    """Return the seconds left of the call being served; None when it has no deadline."""
    deadline = _DEADLINE.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class ServerDeadline:
    """Keeps the caller's deadline for the time of the call."""

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Note what is left."""
        left = call.context.time_remaining()
        _DEADLINE.set(None if left is None else time.monotonic() + left)
        yield


class ClientDeadline:
    """Gives every outgoing call a deadline; a stream only that of the call being served."""

    def __init__(self, default: float = DEFAULT_TIMEOUT, margin: float = MARGIN) -> None:
        self._default = default
        self._margin = margin

    def opening(self, call: OutgoingCall) -> tuple[OutgoingCall, Done | None]:
        """Set the timeout to the smallest of the call's own (or the default) and what is left."""
        timeout = call.timeout
        if timeout is None and not call.streaming:
            timeout = self._default
        left = remaining()
        if left is not None:
            left = max(_SHORTEST, left - self._margin)
            timeout = left if timeout is None else min(timeout, left)
        return replace(call, timeout=timeout), None
