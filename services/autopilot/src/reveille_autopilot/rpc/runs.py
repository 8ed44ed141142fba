"""The part of AutopilotService that runs rules and shows their runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille_autopilot.rpc import parse
from reveille_autopilot.rpc.rules import RuleServicer
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.autopilots import Autopilots
from reveille_autopilot.usecases.call_off import CallOff
from reveille_autopilot.usecases.read_runs import RunReader
from reveille_autopilot.usecases.run_now import RunRequests
from reveille_autopilot.usecases.signing import SigningSecrets
from reveille_autopilot.usecases.triggers import Triggers
from reveille_runtime.access import current_actor
from reveille_runtime.paging import page_token, read_page


class AutopilotServicer(RuleServicer):
    """Serves AutopilotService whole."""

    def __init__(
        self,
        autopilots: Autopilots,
        triggers: Triggers,
        secrets: SigningSecrets,
        requests: RunRequests,
        reader: RunReader,
        call_off: CallOff,
    ) -> None:
        super().__init__(autopilots, triggers, secrets)
        self._requests = requests
        self._reader = reader
        self._call_off = call_off

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
        return pb.GetRunResponse(run=messages.run(await self._reader.get(current_actor(), run_id)))

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
        found = await self._reader.page(current_actor(), wanted, before, page.limit)
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
        run = await self._reader.wait(current_actor(), run_id, timeout)
        return pb.WaitRunResponse(run=messages.run(run))
