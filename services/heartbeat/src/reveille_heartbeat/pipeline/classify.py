"""The stage `classify`: from what was seen to the outcome that is written."""

from __future__ import annotations

from reveille_heartbeat.domain import outcome
from reveille_heartbeat.pipeline.context import Parts, RunContext


async def classify(context: RunContext, parts: Parts) -> None:  # noqa: ARG001 (a stage)
    """Apply the rule."""
    result = context.result
    if result is None:
        raise AssertionError("the stage `execute` comes before")
    context.outcome = outcome.classify(result.end, context.answer, result.problem)
