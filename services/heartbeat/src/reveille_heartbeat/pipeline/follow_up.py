"""The stage `follow_up`: the next attempt or the wakeup's end; slot, issue and folder are free."""

from __future__ import annotations

import asyncio

from reveille_heartbeat.pipeline.context import Parts, RunContext


async def follow_up(context: RunContext, parts: Parts) -> None:
    """Do it, unless settling has done it, give the lease back, and leave no files."""
    if not context.over:
        # Before the write that clears the token: a renewal must not take that for a loss.
        context.held.release()
        await parts.finisher.follow_up(context.lease, context.loaded)
    files = context.adapter is None or context.adapter.files
    # Most agents leave what they found: no thread is worth its waking for that.
    if files and not context.spool.remove_known():
        await asyncio.to_thread(context.spool.remove)
