"""The stage `settle`: the attempt's terminal state, in one transaction with all it changes."""

from __future__ import annotations

from reveille_heartbeat.pipeline.context import Parts, RunContext


async def settle(context: RunContext, parts: Parts) -> None:
    """Write it; when somebody else was first, theirs stays.

    Where nothing of the attempt runs any more, for certain, what follows it is written at the same
    time.
    """
    if context.outcome is None or context.result is None:
        raise AssertionError("the stage `classify` comes before")
    adapter = context.adapter
    gone = context.result.gone or (adapter is not None and not adapter.survives)
    lease, loaded, outcome = context.lease, context.loaded, context.outcome
    if not gone:
        await parts.finisher.settle(lease, loaded, outcome, context.silence)
        return
    # Before the write that clears the token: a renewal must not take that for a loss.
    context.held.release()
    await parts.finisher.finish(lease, loaded, outcome, context.silence)
    context.over = True
