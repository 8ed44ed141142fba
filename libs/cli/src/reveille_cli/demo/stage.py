"""What the demo sets up before anything happens: people, agents, rules and their triggers."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from google.protobuf.struct_pb2 import Struct

from reveille.autopilot.v1 import autopilot_pb2 as rule
from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.autopilot.v1 import workspace_service_pb2 as workspace
from reveille.common.v1 import access_pb2
from reveille.heartbeat.v1 import agent_pb2 as heartbeat
from reveille_cli.apis import AGENTS, AUTOPILOTS, WORKSPACES
from reveille_cli.connection import TOKEN_VARIABLE, Client
from reveille_cli.demo.progress import Progress
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.keys import LOCAL_USER, key_file
from reveille_runtime.access import CallerKind, Role
from reveille_runtime.tokens import OPERATOR_ISSUER, TokenMinter

PUBLISHER = "maya"
CRON = "* * * * *"
TRIAGE = "triage"
ECHO = "echo"
_READY_WITHIN = 30.0
_SECRET_BYTES = 24

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Examples:
    """The files of examples/ that the demo plays with."""

    agent: Path
    issue: Path

    @classmethod
    def beside(cls, compose_file: Path) -> Examples:
        """Find them in the checkout that the compose file belongs to."""
        folder = compose_file.parent / "examples"
        found = cls(folder / "agents" / "triage.py", folder / "github" / "issues_opened.json")
        for file in (found.agent, found.issue):
            if not file.is_file():
                raise Failure(
                    "examples_missing",
                    f"{file} is not there",
                    ExitCode.REFUSED,
                    hint="the demo plays with the files of examples/: run it in a checkout",
                )
        return found


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that was set up."""

    workspace_id: str
    triage_id: str
    echo_id: str
    on_issue: rule.Autopilot
    each_minute: rule.Autopilot
    by_hand: rule.Autopilot
    webhook: rule.Trigger
    hook_url: str
    secret: bytes
    schedule: rule.Trigger

    @property
    def agents(self) -> Mapping[str, str]:
        """The agents' names by their ids."""
        return {self.triage_id: TRIAGE, self.echo_id: ECHO}


class Builder:
    """Sets the stage, call by call."""

    def __init__(self, owner: Client, progress: Progress, examples: Examples) -> None:
        self._owner = owner
        self._progress = progress
        self._examples = examples

    def workspace(self) -> str:
        """Create a workspace that `local` owns and where a colleague is an administrator."""
        created: workspace.CreateWorkspaceResponse = self._owner.call(
            WORKSPACES,
            "CreateWorkspace",
            workspace.CreateWorkspaceRequest(
                name="Lighthouse", issue_prefix="LAMP", owner_user_id=LOCAL_USER
            ),
        )
        workspace_id = created.workspace.workspace_id
        self._owner.call(
            WORKSPACES,
            "AddMember",
            workspace.AddMemberRequest(
                workspace_id=workspace_id, user_id=PUBLISHER, role=access_pb2.ROLE_ADMIN
            ),
        )
        return workspace_id

    def stage(self, workspace_id: str, publisher: Client) -> Stage:
        """Create agents, rules and triggers, and wait until the services know them."""
        triage = self._agent(
            workspace_id,
            TRIAGE,
            "process",
            {"command": [sys.executable, str(self._examples.agent)]},
        )
        # The schedule comes first: its minute passes while the rest goes on.
        each_minute = self._rule(
            workspace_id,
            "Look after the lamp",
            "See whether the lamp turns, and close the issue when it does.",
            triage,
            rule.EXECUTION_MODE_CREATE_ISSUE,
            issue_title_template="Lamp round of {{date}}",
        )
        schedule = self._trigger(
            self._owner,
            autopilot.CreateTriggerRequest(
                autopilot_id=each_minute.autopilot_id,
                label="every minute",
                schedule=rule.ScheduleTrigger(cron=CRON, time_zone="UTC"),
            ),
        )
        echo = self._agent(
            workspace_id, ECHO, "echo", {"summary": "Noted.", "issue_status": "done"}
        )
        on_issue = self._rule(
            workspace_id,
            "Triage new GitHub issues",
            "Read the new issue and say what it is about.",
            triage,
            rule.EXECUTION_MODE_RUN_ONLY,
        )
        by_hand = self._rule(
            workspace_id,
            "Keep a note",
            "Note down what you are given.",
            echo,
            rule.EXECUTION_MODE_CREATE_ISSUE,
        )
        webhook = self._trigger(
            publisher,
            autopilot.CreateTriggerRequest(
                autopilot_id=on_issue.autopilot_id,
                label="new issues of beacon",
                webhook=rule.WebhookTrigger(
                    provider="github",
                    event_filters=[rule.EventFilter(event="issues", actions=["opened"])],
                ),
            ),
        )
        secret = secrets.token_urlsafe(_SECRET_BYTES).encode()
        publisher.call(
            AUTOPILOTS,
            "AddSigningSecret",
            autopilot.AddSigningSecretRequest(trigger_id=webhook.trigger.trigger_id, secret=secret),
        )
        return Stage(
            workspace_id=workspace_id,
            triage_id=triage,
            echo_id=echo,
            on_issue=self._reread(on_issue),
            each_minute=self._reread(each_minute),
            by_hand=self._reread(by_hand),
            webhook=webhook.trigger,
            hook_url=webhook.hook_url or self._owner.hooks_url(webhook.hook_path),
            secret=secret,
            schedule=schedule.trigger,
        )

    def _agent(self, workspace_id: str, name: str, adapter: str, config: Mapping[str, Any]) -> str:
        settings = Struct()
        settings.update(config)
        request = heartbeat.CreateAgentRequest(
            workspace_id=workspace_id,
            name=name,
            adapter=adapter,
            adapter_config=settings,
            max_concurrent_runs=2,
        )

        def create() -> str | None:
            try:
                created: heartbeat.CreateAgentResponse = self._owner.call(
                    AGENTS, "CreateAgent", request
                )
            except Failure as failure:
                # The workspace travels from autopilot to heartbeat, as a rule at once.
                if failure.exit_code is ExitCode.NOT_FOUND:
                    return None
                raise
            return created.agent.agent_id

        return self._until(create, f"heartbeat to know the workspace of {name}")

    def _rule(
        self,
        workspace_id: str,
        title: str,
        prompt: str,
        agent_id: str,
        mode: rule.ExecutionMode.ValueType,
        issue_title_template: str = "",
    ) -> rule.Autopilot:
        created: autopilot.CreateAutopilotResponse = self._owner.call(
            AUTOPILOTS,
            "CreateAutopilot",
            autopilot.CreateAutopilotRequest(
                workspace_id=workspace_id,
                title=title,
                prompt=prompt,
                agent_id=agent_id,
                execution_mode=mode,
                issue_title_template=issue_title_template,
            ),
        )
        return created.autopilot

    def _trigger(
        self, who: Client, request: autopilot.CreateTriggerRequest
    ) -> autopilot.CreateTriggerResponse:
        """Create a trigger and wait until the scheduler or the gateway has it."""
        created: autopilot.CreateTriggerResponse = who.call(AUTOPILOTS, "CreateTrigger", request)
        wanted = autopilot.GetTriggerRequest(trigger_id=created.trigger.trigger_id)

        def synced() -> bool | None:
            found: autopilot.GetTriggerResponse = who.call(AUTOPILOTS, "GetTrigger", wanted)
            return found.trigger.synced or None

        if not created.endpoint_ready:
            self._until(synced, f"the trigger “{request.label}” to be known everywhere")
        return created

    def _reread(self, made: rule.Autopilot) -> rule.Autopilot:
        """Read a rule again: its triggers have given it another version."""
        found: autopilot.GetAutopilotResponse = self._owner.call(
            AUTOPILOTS,
            "GetAutopilot",
            autopilot.GetAutopilotRequest(autopilot_id=made.autopilot_id),
        )
        return found.autopilot

    def _until(self, look: Callable[[], T | None], what: str) -> T:
        found = self._progress.wait(look, lambda: f"waiting for {what}", timeout=_READY_WITHIN)
        if found is None:
            raise Failure(
                "not_ready",
                f"waited {_READY_WITHIN:g} s in vain for {what}",
                ExitCode.FAILED,
            )
        return found


def colleague(data_dir: DataDir, workspace_id: str) -> Client:
    """Let the colleague call, with a token of her own."""
    minter = TokenMinter(key_file(data_dir, OPERATOR_ISSUER), OPERATOR_ISSUER)
    token = minter.mint(CallerKind.USER, PUBLISHER, roles={UUID(workspace_id): Role.ADMIN})
    return Client(data_dir.root, {TOKEN_VARIABLE: token})
