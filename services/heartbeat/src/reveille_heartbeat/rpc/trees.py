"""IssueService: relations of issues, and holds on trees of them."""

from __future__ import annotations

from typing import Any

from reveille.heartbeat.v1 import hold_pb2, issue_pb2
from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceServicer
from reveille_heartbeat.rpc import parse, parse_issues
from reveille_heartbeat.rpc.show_issues import HOLD_MODES, hold, issue
from reveille_heartbeat.usecases.issues.hold_trees import HoldTrees, NewHold
from reveille_heartbeat.usecases.issues.issue_names import IssueRef
from reveille_heartbeat.usecases.issues.relate_issues import RelateIssues
from reveille_runtime.access import current_actor
from reveille_runtime.ids import new_id
from reveille_runtime.validation import Violations


class TreeCalls(IssueServiceServicer):
    """Serves what ties issues together, and what holds them."""

    def __init__(self, relate: RelateIssues, holds: HoldTrees) -> None:
        self._relate = relate
        self._holds = holds

    async def AddRelation(
        self, request: issue_pb2.AddRelationRequest, context: Any
    ) -> issue_pb2.AddRelationResponse:
        """Make one issue block another."""
        view = await self._relate.add(current_actor(), *_pair(request))
        return issue_pb2.AddRelationResponse(issue=issue(view))

    async def RemoveRelation(
        self, request: issue_pb2.RemoveRelationRequest, context: Any
    ) -> issue_pb2.RemoveRelationResponse:
        """Have one issue block another no more."""
        view = await self._relate.remove(current_actor(), *_pair(request))
        return issue_pb2.RemoveRelationResponse(issue=issue(view))

    async def HoldIssueTree(
        self, request: hold_pb2.HoldIssueTreeRequest, context: Any
    ) -> hold_pb2.HoldIssueTreeResponse:
        """Hold an issue and everything below it."""
        found = Violations()
        new = NewHold(
            hold_id=new_id(),
            ref=parse.issue_ref(found, "root_issue_id", request.root_issue_id),
            mode=found.enum("mode", request.mode or hold_pb2.HOLD_MODE_PAUSE, HOLD_MODES),
            reason=found.text("reason", request.reason, maximum=500),
            let_runs_finish=request.let_runs_finish,
        )
        found.check()
        held, cancelled = await self._holds.hold(current_actor(), new)
        return hold_pb2.HoldIssueTreeResponse(hold=hold(held), cancelled_wakeups=cancelled)

    async def ReleaseIssueTree(
        self, request: hold_pb2.ReleaseIssueTreeRequest, context: Any
    ) -> hold_pb2.ReleaseIssueTreeResponse:
        """Let a held tree go on."""
        ref = parse_issues.one_ref("root_issue_id", request.root_issue_id)
        released = await self._holds.release(current_actor(), ref)
        return hold_pb2.ReleaseIssueTreeResponse(hold=hold(released))


def _pair(request: Any) -> tuple[IssueRef, IssueRef]:
    found = Violations()
    pair = (
        parse.issue_ref(found, "issue_id", request.issue_id),
        parse.issue_ref(found, "blocker_issue_id", request.blocker_issue_id),
    )
    found.check()
    return pair
