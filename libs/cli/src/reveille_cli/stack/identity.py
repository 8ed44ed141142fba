"""Which process a pid means: a pid alone may have been given to a stranger since."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

# Start times are derived from the boot clock, which may be adjusted by a little meanwhile.
_TOLERANCE = 2.0


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A pid and when its process began."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Return who has this pid now, if anyone."""
        try:
            return cls(pid=pid, started=psutil.Process(pid).create_time())
        except psutil.Error:
            return None

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> ProcessIdentity:
        """Read what `as_json` wrote."""
        return cls(pid=int(document["pid"]), started=float(document["started"]))

    def as_json(self) -> dict[str, float]:
        """Return the form kept in files."""
        return {"pid": self.pid, "started": self.started}

    def is_alive(self) -> bool:
        """Tell whether this very process runs; a zombie does not."""
        try:
            process = psutil.Process(self.pid)
            return (
                abs(process.create_time() - self.started) < _TOLERANCE
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.Error:
            return False

    def send(self, number: signal.Signals) -> bool:
        """Signal this very process; False when it is gone."""
        if not hasattr(os, "pidfd_open"):
            if not self.is_alive():
                return False
            os.kill(self.pid, number)
            return True
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor pins the process; only now is its identity worth checking.
            if not self.is_alive():
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True
