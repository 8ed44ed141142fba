"""What the demo saw: each trigger's run with all that hangs on it, as read from the services."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reveille.autopilot.v1 import run_pb2 as autopilot
from reveille.heartbeat.v1 import issue_pb2, run_pb2
from reveille.scheduler.v1 import execution_pb2
from reveille.webhook.v1 import delivery_service_pb2 as webhook
from reveille_cli.demo.github import HookAnswer, HookRequest
from reveille_cli.demo.stage import Stage
from reveille_cli.findings import Explanation
from reveille_cli.spans import Trace


@dataclass(frozen=True, slots=True)
class RunStory:
    """One run of a rule, the attempts made for it, and what the agent said."""

    run: autopilot.AutopilotRun
    attempts: Sequence[run_pb2.HeartbeatRun]
    output: str
    issue: issue_pb2.Issue | None
    trace: Trace | None

    @property
    def attempt(self) -> run_pb2.HeartbeatRun | None:
        """The newest attempt."""
        return self.attempts[0] if self.attempts else None

    @property
    def answer(self) -> Mapping[str, Any]:
        """What the agent put as `result` into its result file; empty when nothing usable came."""
        if self.attempt is None or not self.attempt.result:
            return {}
        result = json.loads(self.attempt.result).get("result")
        return result if isinstance(result, dict) else {}


@dataclass(frozen=True, slots=True)
class Posts:
    """The three requests and their answers."""

    request: HookRequest
    first: HookAnswer
    again: HookAnswer
    forged: HookAnswer


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that happened; what did not come in time is None."""

    stage: Stage
    posts: Posts
    delivery: webhook.Delivery | None
    rejected: webhook.Delivery | None
    runs_of_hook: int
    webhook: RunStory | None
    manual: RunStory
    execution: execution_pb2.Execution | None
    schedule: RunStory | None
    why: Explanation
    """What the services say when asked why the webhook's run is as it is."""
