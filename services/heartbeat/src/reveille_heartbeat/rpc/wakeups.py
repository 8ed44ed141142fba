"""WakeupService."""

from __future__ import annotations

from typing import Any

from reveille.heartbeat.v1 import wakeup_pb2 as pb
from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceServicer
from reveille_heartbeat.rpc import parse, parse_issues, show
from reveille_heartbeat.rpc.pages import page_of
from reveille_heartbeat.usecases.reading import OnlyWakeups, Reader
from reveille_heartbeat.usecases.visible import unknown_workspace
from reveille_heartbeat.usecases.wakeups.cancel_wakeup import CancelWakeup
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import (
    Cancellation,
    Cancelled,
    CancelWakeups,
)
from reveille_heartbeat.usecases.wakeups.enqueue_wakeups import EnqueueWakeups
from reveille_runtime.access import current_actor
from reveille_runtime.paging import read_page
from reveille_runtime.validation import Violations


class WakeupServicer(WakeupServiceServicer):
    """Serves wakeups."""

    def __init__(
        self,
        enqueue: EnqueueWakeups,
        cancel: CancelWakeups,
        cancel_one: CancelWakeup,
        reader: Reader,
    ) -> None:
        self._enqueue = enqueue
        self._cancel = cancel
        self._cancel_one = cancel_one
        self._reader = reader

    async def EnqueueWakeups(
        self, request: pb.EnqueueWakeupsRequest, context: Any
    ) -> pb.EnqueueWakeupsResponse:
        """Record and judge wishes."""
        actor = current_actor()
        found = Violations()
        parse.batch(found, "wakeups", request.wakeups, request.ByteSize())
        wishes = [
            parse.wish(found, f"wakeups[{at}]", each, actor)
            for at, each in enumerate(request.wakeups)
        ]
        found.check()
        for each in wishes:
            if actor.role_in(each.workspace_id) is None:
                raise unknown_workspace(each.workspace_id)
        answers = await self._enqueue(wishes)
        return pb.EnqueueWakeupsResponse(results=[show.enqueued(each) for each in answers])

    async def CancelWakeups(
        self, request: pb.CancelWakeupsRequest, context: Any
    ) -> pb.CancelWakeupsResponse:
        """Cancel what keys have made."""
        found = Violations()
        parse.batch(found, "cancellations", request.cancellations, request.ByteSize())
        wanted = [
            Cancellation(
                workspace_id=found.uuid(f"cancellations[{at}].workspace_id", each.workspace_id),
                occurrence_key=found.text(
                    f"cancellations[{at}].occurrence_key",
                    each.occurrence_key,
                    minimum=1,
                    maximum=parse.MAX_KEY,
                ),
                user_id=found.text(f"cancellations[{at}].user_id", each.user_id, maximum=128),
            )
            for at, each in enumerate(request.cancellations)
        ]
        found.check()
        results = await self._cancel(wanted)
        return pb.CancelWakeupsResponse(results=[_cancelled(each) for each in results])

    async def CancelWakeup(
        self, request: pb.CancelWakeupRequest, context: Any
    ) -> pb.CancelWakeupResponse:
        """Cancel one wakeup."""
        wakeup_id = parse.one_id("wakeup_id", request.wakeup_id)
        wakeup = await self._cancel_one(current_actor(), wakeup_id)
        return pb.CancelWakeupResponse(wakeup=show.wakeup(wakeup))

    async def GetWakeup(self, request: pb.GetWakeupRequest, context: Any) -> pb.GetWakeupResponse:
        """Read a wakeup."""
        wakeup_id = parse.one_id("wakeup_id", request.wakeup_id)
        found = await self._reader.wakeup(current_actor(), wakeup_id)
        return pb.GetWakeupResponse(wakeup=show.wakeup(found))

    async def ListWakeups(
        self, request: pb.ListWakeupsRequest, context: Any
    ) -> pb.ListWakeupsResponse:
        """List a workspace's wakeups, newest first."""
        found = Violations()
        workspace_id = found.uuid("workspace_id", request.workspace_id)
        agent_id = found.optional_uuid("agent_id", request.agent_id)
        issue = parse_issues.optional_ref(found, "issue_id", request.issue_id)
        states = parse.states(found, "states", request.states, show.WAKEUP_STATES)
        reasons = parse.reasons(found, "reasons", request.reasons)
        found.check()
        query = ("ListWakeups", workspace_id, agent_id, issue, *sorted(states), *sorted(reasons))
        page = read_page(request.page_size, request.page_token, query)
        only = OnlyWakeups(agent_id, issue, states, reasons)
        listed = await self._reader.wakeups(current_actor(), workspace_id, only, page)
        wakeups, token = page_of(listed, show.wakeup, lambda each: each.wakeup_id, query)
        return pb.ListWakeupsResponse(wakeups=wakeups, next_page_token=token)


def _cancelled(each: Cancelled) -> pb.CancellationResult:
    return pb.CancellationResult(
        occurrence_key=each.occurrence_key,
        state=show.wakeup_state(each.state),
        wakeup_id="" if each.wakeup_id is None else str(each.wakeup_id),
        issue_id="" if each.issue_id is None else str(each.issue_id),
        recorded=each.recorded,
    )
