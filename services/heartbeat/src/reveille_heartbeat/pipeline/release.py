"""The stage `release`: of an attempt that had ended before we held it, nothing is left running."""

from __future__ import annotations

from reveille_heartbeat.pipeline.context import Parts, RunContext
from reveille_heartbeat.pipeline.execute import RunReporter, describe


async def release(context: RunContext, parts: Parts) -> None:
    """End its process and all that it left; only then may the next one begin."""
    if context.adapter is not None:
        agent_context = describe(context, parts)
        reporter = RunReporter(context, parts, agent_context.secrets)
        await context.adapter.clear(agent_context, reporter)
