"""The stage `settle`: the attempt's terminal state, in one transaction with all it changes."""

from __future__ import annotations

from reveille_heartbeat.pipeline.context import Parts, RunContext


async def settle(context: RunContext, parts: Parts) -> None:
    """Write it; when somebody else was first, theirs stays.

    Where nothing of the attempt is left, neither process nor files, what follows it is written at
    the same time.
    """
    if context.outcome is None:
        raise AssertionError("the stage `classify` comes before")
    adapter = context.adapter
    if adapter is None or adapter.files:
        await parts.finisher.settle(context.lease, context.loaded, context.outcome)
        return
    # Before the write that clears the token: a renewal must not take that for a loss.
    context.held.release()
    await parts.finisher.finish(context.lease, context.loaded, context.outcome)
    context.over = True
