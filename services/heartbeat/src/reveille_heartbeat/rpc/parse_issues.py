"""Requests about issues as the domain's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from reveille.heartbeat.v1 import issue_pb2 as pb
from reveille_heartbeat.domain.issue_changes import MAX_RELATIONS
from reveille_heartbeat.domain.issue_edits import IssueChange
from reveille_heartbeat.domain.states import ISSUE_INITIAL, ISSUE_TERMINAL, IssueState
from reveille_heartbeat.domain.values import Origin
from reveille_heartbeat.rpc import parse
from reveille_heartbeat.rpc.show import ISSUE_STATES
from reveille_heartbeat.rpc.show_issues import PRIORITIES
from reveille_heartbeat.usecases.issues.create_issue import NewIssue
from reveille_heartbeat.usecases.issues.issue_names import IssueRef
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.carrier import inject
from reveille_runtime.ids import new_id
from reveille_runtime.masks import read_mask
from reveille_runtime.validation import NIL, Violations

OPEN_STATES = {n: state for n, state in ISSUE_STATES.items() if state not in ISSUE_TERMINAL}
_MAX_USER = 128
_MAX_SUBSCRIBERS = 100
FIELDS = frozenset(
    {
        "status",
        "title",
        "description",
        "priority",
        "assignee_agent_id",
        "assignee_user_id",
        "reviewer_agent_id",
        "reviewer_user_id",
        "project_id",
        "parent_issue_id",
        "responsible_user_id",
        "subscriber_user_ids",
    }
)


def new_issue(request: pb.CreateIssueRequest, actor: Actor) -> NewIssue:
    """Parse an issue to create, and the wake of its assignment."""
    found = Violations()
    workspace_id = found.uuid("workspace_id", request.workspace_id)
    title = found.text("title", request.title, minimum=1, maximum=parse.MAX_TITLE)
    description = _description(found, request)
    assignee = found.optional_uuid("assignee_agent_id", request.assignee_agent_id)
    squad = found.optional_uuid("assignee_squad_id", request.assignee_squad_id)
    user = _user(found, "assignee_user_id", request.assignee_user_id)
    if sum(bool(each) for each in (assignee, squad, user)) > 1:
        found.add("assignee_agent_id", "an issue belongs to one agent, squad or person")
    reviewer, reviewing_user = _reviewer(found, request)
    who = _origin(found, request, actor)
    what = parse.payload(found, "payload", request.payload)
    status = _initial(found, request.status)
    if who.occurrence_key is not None:
        if assignee is None and squad is None and not found:
            found.add("assignee_agent_id", "is required for an occurrence", "FIELD_REQUIRED")
        if status is not IssueState.TODO:
            found.add("status", "must be to do for an occurrence")
    responsible = _user(found, "responsible_user_id", request.responsible_user_id)
    new = NewIssue(
        actor=actor,
        issue_id=new_id(),
        workspace_id=workspace_id,
        title=title,
        description=description,
        priority=_priority(found, request.priority),
        assignee_agent_id=assignee,
        responsible_user_id=responsible or who.accountable_user_id,
        occurrence_key=who.occurrence_key,
        trace_carrier=who.trace_carrier,
        wish=None,
        repeatable=parse.repeatable(actor, "CreateIssue", request, request.request_id),
        status=status,
        assignee_squad_id=squad,
        assignee_user_id=user,
        reviewer_agent_id=reviewer,
        reviewer_user_id=reviewing_user,
        project_id=found.optional_uuid("project_id", request.project_id),
        parent=optional_ref(found, "parent_issue_id", request.parent_issue_id),
        blockers=_blockers(found, request.blocker_issue_ids),
        subscribers=_subscribers(found, request.subscriber_user_ids),
        **_made_by(who, actor),
    )
    found.check()
    if (assignee is None and squad is None) or status is IssueState.BACKLOG:
        return new
    # A squad's leader takes its place when the row is written.
    wish = parse.assignment(assignee or NIL, workspace_id, title, description, actor, who, what)
    return replace(new, wish=replace(wish, squad_id=squad))


def change(
    found: Violations, request: pb.UpdateIssueRequest
) -> tuple[IssueChange, IssueRef | None]:
    """Parse what is to change, the status alone without a mask, and the parent as it is named."""
    named = frozenset({"status"})
    if request.HasField("update_mask"):
        named = read_mask(found, request.update_mask, FIELDS)
    parsers: dict[str, Any] = {
        "title": lambda: found.text("title", request.title, minimum=1, maximum=parse.MAX_TITLE),
        "description": lambda: _description(found, request),
        "priority": lambda: _priority(found, request.priority),
        "assignee_agent_id": lambda: _agent(found, "assignee_agent_id", request),
        "assignee_user_id": lambda: _user(found, "assignee_user_id", request.assignee_user_id),
        "reviewer_agent_id": lambda: _agent(found, "reviewer_agent_id", request),
        "reviewer_user_id": lambda: _user(found, "reviewer_user_id", request.reviewer_user_id),
        "project_id": lambda: _agent(found, "project_id", request),
        "parent_issue_id": lambda: None,
        "responsible_user_id": lambda: _user(
            found, "responsible_user_id", request.responsible_user_id
        ),
    }
    values = {name: parsers[name]() for name in sorted(named & parsers.keys())}
    for agent, user in (
        ("assignee_agent_id", "assignee_user_id"),
        ("reviewer_agent_id", "reviewer_user_id"),
    ):
        if values.get(agent) and values.get(user):
            found.add(user, f"must be empty beside {agent}")
    status = found.enum("status", request.status, ISSUE_STATES) if "status" in named else None
    subscribers = None
    if "subscriber_user_ids" in named:
        subscribers = _subscribers(found, request.subscriber_user_ids)
    parent = None
    if "parent_issue_id" in named:
        parent = optional_ref(found, "parent_issue_id", request.parent_issue_id)
    return IssueChange(values, status, subscribers), parent


def optional_ref(found: Violations, field: str, text: str) -> IssueRef | None:
    """Parse an issue's id or identifier that may be empty."""
    return parse.issue_ref(found, field, text) if text else None


def one_ref(field: str, text: str) -> IssueRef:
    """Parse a request's only issue."""
    found = Violations()
    ref = parse.issue_ref(found, field, text)
    found.check()
    return ref


def _origin(found: Violations, request: pb.CreateIssueRequest, actor: Actor) -> Origin:
    """A service says for whom it asks; a person asks for themselves, a run for nobody."""
    if actor.kind is CallerKind.SERVICE:
        return parse.origin(found, "origin", request.origin, actor)
    if request.HasField("origin"):
        found.add("origin", "only services may fill it")
    person = actor.user_id or ""
    return Origin(originator_user_id=person, accountable_user_id=person, trace_carrier=inject())


def _made_by(who: Origin, actor: Actor) -> dict[str, str]:
    if actor.kind is CallerKind.RUN:
        return {"origin_kind": "agent", "origin_id": str(actor.run_id)}
    if who.occurrence_key is not None:
        return {"origin_kind": "autopilot", "origin_id": who.autopilot_run_id}
    return {"origin_kind": "manual", "origin_id": ""}


def _description(found: Violations, request: Any) -> str:
    return found.text("description", request.description, maximum=parse.MAX_PROMPT, strip=False)


def _priority(found: Violations, value: pb.IssuePriority.ValueType) -> int:
    if value not in PRIORITIES:
        found.add("priority", "is not a known priority", "INVALID_ENUM")
    return PRIORITIES.get(value, 4)


def _initial(found: Violations, value: int) -> IssueState:
    if not value:
        return IssueState.TODO
    return found.enum(
        "status",
        value,
        {number: state for number, state in ISSUE_STATES.items() if state in ISSUE_INITIAL},
    )


def _reviewer(found: Violations, request: pb.CreateIssueRequest) -> tuple[UUID | None, str]:
    agent = found.optional_uuid("reviewer_agent_id", request.reviewer_agent_id)
    user = _user(found, "reviewer_user_id", request.reviewer_user_id)
    if agent and user:
        found.add("reviewer_user_id", "must be empty beside reviewer_agent_id")
    return agent, user


def _agent(found: Violations, field: str, request: Any) -> UUID | None:
    return found.optional_uuid(field, getattr(request, field))


def _user(found: Violations, field: str, text: str) -> str:
    return found.text(field, text, maximum=_MAX_USER)


def _blockers(found: Violations, texts: Sequence[str]) -> tuple[IssueRef, ...]:
    if len(texts) > MAX_RELATIONS:
        found.add("blocker_issue_ids", f"has more than {MAX_RELATIONS} entries")
    return tuple(
        parse.issue_ref(found, f"blocker_issue_ids[{at}]", text)
        for at, text in enumerate(texts[:MAX_RELATIONS])
    )


def _subscribers(found: Violations, texts: Sequence[str]) -> tuple[str, ...]:
    if len(texts) > _MAX_SUBSCRIBERS:
        found.add("subscriber_user_ids", f"has more than {_MAX_SUBSCRIBERS} entries")
    users = [
        found.text(f"subscriber_user_ids[{at}]", text, minimum=1, maximum=_MAX_USER)
        for at, text in enumerate(texts[:_MAX_SUBSCRIBERS])
    ]
    return tuple(dict.fromkeys(users))
