"""Where a planned occurrence can stand, and where it may go from there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ExecutionState(StrEnum):
    """The state of one occurrence; "expired" is RUNNING with a lease in the past."""

    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


EXECUTION_TRANSITIONS: Mapping[ExecutionState, frozenset[ExecutionState]] = {
    ExecutionState.RUNNING: frozenset({ExecutionState.SUCCESS, ExecutionState.FAILED}),
    # A failed occurrence may be tried again, or be overtaken by a newer rule.
    ExecutionState.FAILED: frozenset({ExecutionState.RUNNING, ExecutionState.SKIPPED}),
    ExecutionState.SUCCESS: frozenset(),
    # A too late occurrence may be asked for by a backfill.
    ExecutionState.SKIPPED: frozenset({ExecutionState.RUNNING}),
}
EXECUTION_INITIAL = frozenset({ExecutionState.RUNNING, ExecutionState.SKIPPED})
EXECUTION_TERMINAL = frozenset(
    state for state, following in EXECUTION_TRANSITIONS.items() if not following
)
