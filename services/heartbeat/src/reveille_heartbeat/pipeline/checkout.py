"""The stage `checkout`: an issue whose agent begins is in progress."""

from __future__ import annotations

from reveille_heartbeat.pipeline.context import Parts, RunContext


async def checkout(context: RunContext, parts: Parts) -> None:
    """Move it, if it waits to be worked on and belongs to this agent."""
    issue = context.loaded.issue
    if issue is None or issue.assignee_agent_id != context.loaded.agent.agent_id:
        return
    context.held.check()
    await parts.held_run.check_out(context.lease, issue.issue_id)
