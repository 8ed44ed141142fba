"""The stage `follow_up`: the next attempt or the wakeup's end; slot, issue and folder are free."""

from __future__ import annotations

import asyncio

from reveille_heartbeat.pipeline.context import Parts, RunContext


async def follow_up(context: RunContext, parts: Parts) -> None:
    """Do it, and give the lease back."""
    if context.run is None:
        raise AssertionError("the stage `load` comes first")
    # Before the write that clears the token: a renewal must not take that for a loss.
    context.held.release()
    await parts.follow_up(context.lease, context.run)
    if context.adapter is None or context.adapter.files:
        await asyncio.to_thread(context.spool.remove)
