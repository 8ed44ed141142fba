"""Hearing of runs that other replicas ended, for those who wait here."""

from __future__ import annotations

import asyncio

from reveille_autopilot.usecases.signals import RunSignals
from reveille_runtime.hints import Hint

_LONGEST = 60.0


async def pass_on(hint: Hint, signals: RunSignals) -> None:
    """Wake every waiter at each hint, until cancelled."""
    while True:
        if await hint.wait(_LONGEST):
            signals.tell_all()


async def send_home(draining: asyncio.Event, signals: RunSignals) -> None:
    """Answer everybody who waits once the service is about to stop."""
    await draining.wait()
    signals.close()
    # A component that returns counts as one that died.
    await asyncio.Event().wait()
