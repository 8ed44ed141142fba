"""Keeping a failure where it happened: one step's trouble must not stop the next one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from reveille_runtime import logs
from reveille_runtime.sqlstate import is_transient

_log = logs.get_logger(__name__)


@contextlib.contextmanager
def isolated(step: str, **facts: Any) -> Iterator[None]:
    """Log what the block raises, and go on after it; a cancellation passes through."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (that is what it is for)
        if is_transient(error):
            _log.warning(
                "The database does not answer; the step is made again later.",
                action="step.interrupted",
                step=step,
                cause=type(error).__name__,
                **facts,
            )
        else:
            _log.exception(
                "A step failed; the others go on.", action="step.failed", step=step, **facts
            )
