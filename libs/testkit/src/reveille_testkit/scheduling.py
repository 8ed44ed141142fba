"""Which tests share a worker of xdist: those that share a stack of real processes.

The files `tests/e2e/test_<stack>_<subject>.py` are about one stack, which is started once, by
whichever worker gets them. Every other test goes where there is room.
"""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it ships none

_STACK = re.compile(r"tests/e2e/test_([a-z]+)_[a-z_]+\.py::")


class StackScheduling(LoadScopeScheduling):  # type: ignore[misc]  # its base is untyped
    """Keeps the tests of a stack together."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """Name what has to run in one worker; for most tests, that is the test itself."""
    stack = _STACK.match(nodeid)
    return f"stack {stack[1]}" if stack else nodeid
