"""The part of AutopilotService that runs rules and shows their runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille_autopilot.rpc import parse
from reveille_autopilot.rpc.triggers import TriggerServicer
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.autopilots import Autopilots
from reveille_autopilot.usecases.call_off import CallOff
from reveille_autopilot.usecases.collaborators import Collaborators
from reveille_autopilot.usecases.read_rules import RuleReader
from reveille_autopilot.usecases.read_runs import RunReader
from reveille_autopilot.usecases.run_now import RunRequests
from reveille_autopilot.usecases.signing import SigningSecrets
from reveille_autopilot.usecases.triggers import Triggers
from reveille_autopilot.usecases.usage import Usage
from reveille_autopilot.usecases.watch_runs import RunWatcher
from reveille_runtime.access import current_actor
from reveille_runtime.paging import page_token, read_page


@dataclass(frozen=True, slots=True)
class Rules:
    """The use cases that publish."""

    autopilots: Autopilots
    reader: RuleReader
    collaborators: Collaborators
    triggers: Triggers
    secrets: SigningSecrets


class AutopilotServicer(TriggerServicer):
    """Serves AutopilotService whole."""

    def __init__(
        self,
        rules: Rules,
        requests: RunRequests,
        runs: RunReader,
        watcher: RunWatcher,
        call_off: CallOff,
        usage: Usage,
    ) -> None:
        super().__init__(
            rules.autopilots, rules.reader, rules.collaborators, rules.triggers, rules.secrets
        )
        self._requests = requests
        self._runs = runs
        self._watcher = watcher
        self._call_off = call_off
        self._usage = usage

    async def RunAutopilot(
        self, request: pb.RunAutopilotRequest, context: Any
    ) -> pb.RunAutopilotResponse:
        """Run a rule now."""
        asked = parse.run_now(request)
        run = await self._requests.run(current_actor(), asked)
        return pb.RunAutopilotResponse(run=messages.run(run))

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        """Read a run."""
        run_id = parse.one_id("run_id", request.run_id)
        return pb.GetRunResponse(run=messages.run(await self._runs.get(current_actor(), run_id)))

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        """List runs."""
        wanted = parse.run_filter(request)
        query = (
            "ListRuns",
            wanted.workspace_id,
            wanted.autopilot_id,
            wanted.trigger_id,
            *sorted(wanted.states),
        )
        page = read_page(request.page_size, request.page_token, query)
        before = None if page.after is None else UUID(str(page.after[0]))
        found = await self._runs.page(current_actor(), wanted, before, page.limit)
        shown = found[: page.size]
        more = page_token([shown[-1].id], query) if len(found) > page.size else ""
        return pb.ListRunsResponse(
            runs=[messages.run(each) for each in shown], next_page_token=more
        )

    async def CancelRun(self, request: pb.CancelRunRequest, context: Any) -> pb.CancelRunResponse:
        """Ask for a run to be cancelled."""
        run_id = parse.one_id("run_id", request.run_id)
        run = await self._call_off.request(current_actor(), run_id)
        return pb.CancelRunResponse(run=messages.run(run))

    async def WaitRun(self, request: pb.WaitRunRequest, context: Any) -> pb.WaitRunResponse:
        """Wait for a run's outcome."""
        run_id, timeout = parse.waiting(request)
        run = await self._runs.wait(current_actor(), run_id, timeout)
        return pb.WaitRunResponse(run=messages.run(run))

    async def WatchRuns(
        self, request: pb.WatchRunsRequest, context: Any
    ) -> AsyncIterator[pb.WatchRunsResponse]:
        """Stream runs as they change."""
        watch = parse.run_watch(request)
        async for message in self._watcher.watch(current_actor(), watch, context):
            yield message

    async def GetUsage(self, request: pb.GetUsageRequest, context: Any) -> pb.GetUsageResponse:
        """Tell how much of a quota is used."""
        workspace_id = parse.one_id("workspace_id", request.workspace_id)
        return await self._usage(current_actor(), workspace_id)
