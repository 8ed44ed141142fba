"""The adapter `echo`: answers at once, in this process, with what it was asked.

Settings: `summary` (text) replaces the summary, `issue_status` (for example `done`) moves the
issue, `fail` (true) makes the attempt fail.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from reveille_heartbeat.adapters.contract import AdapterResult, AgentContext, Problem, Reporter
from reveille_heartbeat.domain.outcome import End, EndKind
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import LogStream

_FIELDS = frozenset({"summary", "issue_status", "fail"})


class EchoAdapter:
    """For trying things out, and for tests of everything around an agent."""

    survives: ClassVar[bool] = False
    files: ClassVar[bool] = False

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Judge the settings."""
        problems = [
            Problem(name, "is not a setting of echo") for name in sorted(config.keys() - _FIELDS)
        ]
        if not isinstance(config.get("summary", ""), str):
            problems.append(Problem("summary", "must be a text"))
        if not isinstance(config.get("fail", False), bool):
            problems.append(Problem("fail", "must be true or false"))
        if config.get("issue_status") not in (None, *(state.value for state in IssueState)):
            known = ", ".join(state.value for state in IssueState)
            problems.append(Problem("issue_status", f"must be one of: {known}"))
        return problems

    async def execute(self, context: AgentContext, reporter: Reporter) -> AdapterResult:
        """Answer."""
        config = context.agent.adapter_config
        wake, about = context.payload["wake"], context.payload["payload"]
        size = len(json.dumps(about.get("body", "")))
        summary = str(config.get("summary") or f"echo: {wake['title']}")
        if not context.resumed:
            line = f"{summary} ({about['content_type'] or 'no payload'}, {size} bytes)\n"
            await reporter.log(LogStream.STDOUT, 0, line.encode())
        if config.get("fail"):
            return AdapterResult(End(EndKind.BROKEN, message="echo was told to fail"))
        document: dict[str, Any] = {
            "summary": summary,
            "result": {"title": wake["title"], "payload_bytes": size},
        }
        if context.payload["issue"] is not None and config.get("issue_status"):
            document["issue_status"] = config["issue_status"]
        return AdapterResult(End(EndKind.EXITED, exit_code=0), document)

    async def clear(self, context: AgentContext, reporter: Reporter) -> None:
        """Nothing outlives the call."""
