"""The stage `settle`: the attempt's terminal state, in one transaction with all it changes."""

from __future__ import annotations

from reveille_heartbeat.pipeline.context import Parts, RunContext


async def settle(context: RunContext, parts: Parts) -> None:
    """Write it; when somebody else was first, theirs stays."""
    loaded = context.loaded
    if context.outcome is None:
        raise AssertionError("the stage `classify` comes before")
    settled = await parts.settle(
        context.lease, loaded.run, loaded.agent, loaded.wakeup, context.outcome
    )
    context.run = settled.run
