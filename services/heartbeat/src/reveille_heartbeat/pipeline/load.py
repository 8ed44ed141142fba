"""The stage `load`: every row of the attempt, its folder, its adapter, how far its log is."""

from __future__ import annotations

from reveille_heartbeat.pipeline.context import Parts, RunContext


async def load(context: RunContext, parts: Parts) -> None:
    """Read them; who has just claimed the attempt got them with the claim."""
    loaded = context.claimed or await parts.held_run.load(context.run_id)
    context.begin(
        loaded,
        parts.spools.of(context.run_id),
        parts.registry.find(loaded.agent.adapter),
        await parts.run_log.ends(context.run_id) if context.resumed else {},
    )
