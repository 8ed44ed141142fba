"""Heartbeat's events as outcomes of runs: matched by occurrence key, in any order, any number."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from reveille.events.v1 import event_service_pb2 as pb
from reveille_autopilot.domain.models import Run
from reveille_autopilot.domain.outcomes import (
    IssueEnd,
    IssueFacts,
    Step,
    WakeFacts,
    WakeState,
    issue_changed,
    wakeup_settled,
)
from reveille_autopilot.store import runs
from reveille_autopilot.usecases import downstream
from reveille_autopilot.usecases.settle import Moment, Settler
from reveille_runtime.db import Database

WAKEUP_SETTLED = "wakeup.settled"
ISSUE_UPDATED = "issue.updated"
ISSUE_DELETED = "issue.deleted"
TYPES = (WAKEUP_SETTLED, ISSUE_UPDATED, ISSUE_DELETED)
_ENDS: Mapping[str, IssueEnd] = {"done": IssueEnd.DONE, "cancelled": IssueEnd.CANCELLED}


class Follower:
    """Acts on the events of runs; events of anything else are none of its business."""

    def __init__(self, db: Database, settler: Settler) -> None:
        self._db = db
        self._settler = settler

    async def handle(self, events: Sequence[pb.Event]) -> None:
        """Apply a batch, in its order; repeating it changes nothing."""
        keyed = [event for event in events if event.occurrence_key and event.type in TYPES]
        if not keyed:
            return
        async with self._db.session() as tx:
            ids = await runs.ids_by_key(tx, sorted({event.occurrence_key for event in keyed}))
            known = await runs.get(tx, sorted(ids.values()))
        steps: dict[UUID, list[Step]] = {}
        for event in keyed:
            run = known.get(ids.get(event.occurrence_key, _NOBODY))
            if run is not None and str(run.workspace_id) == event.workspace_id:
                steps.setdefault(run.id, []).append(_READERS[event.type](run, event))
        # Giving a run up cancels what it made, and so does a call that comes later still: the event
        # of that may be here before the sweep has written why.
        await self._settler.apply(await self._settler.without_given_up(steps), Moment.COMPLETE)


_NOBODY = UUID(int=0)


def _wakeup_settled(run: Run, event: pb.Event) -> Step:
    facts = _facts(event)
    result = facts.get("result")
    return wakeup_settled(
        run.execution_mode,
        run.issue_id is not None,
        WakeFacts(
            state=WakeState(facts["state"]),
            wakeup_id=downstream.optional_id(facts.get("wakeup_id") or event.subject_id),
            issue_id=downstream.optional_id(facts.get("issue_id")),
            reason=facts.get("reason") or None,
            message=facts.get("message") or "",
            result=None if result is None else downstream.result_json(result),
        ),
    )


def _issue_updated(run: Run, event: pb.Event) -> Step:
    facts = _facts(event)
    issue_id = UUID(facts.get("issue_id") or event.subject_id)
    return issue_changed(run.execution_mode, IssueFacts(issue_id, _ENDS.get(facts["status"])))


def _issue_deleted(run: Run, event: pb.Event) -> Step:
    return issue_changed(run.execution_mode, IssueFacts(UUID(event.subject_id), IssueEnd.GONE))


def _facts(event: pb.Event) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(event.payload)
    return facts


_READERS: Mapping[str, Callable[[Run, pb.Event], Step]] = {
    WAKEUP_SETTLED: _wakeup_settled,
    ISSUE_UPDATED: _issue_updated,
    ISSUE_DELETED: _issue_deleted,
}
