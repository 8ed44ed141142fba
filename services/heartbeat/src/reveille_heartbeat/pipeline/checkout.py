"""The stage `checkout`: an issue whose agent begins to work on it is in progress, and its own."""

from __future__ import annotations

from reveille_heartbeat.pipeline.context import Parts, RunContext


async def checkout(context: RunContext, parts: Parts) -> None:
    """Check it out; where that is not to be, the attempt goes on without."""
    if context.loaded.issue is None:
        return
    context.held.check()
    await parts.held_run.check_out(context.lease, context.loaded)
