"""Requests as the domain's values, with everything that is wrong reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct

from reveille.heartbeat.v1 import wakeup_pb2
from reveille_heartbeat.domain.values import (
    NOBODY,
    Origin,
    Payload,
    WakeupSource,
    Wish,
)
from reveille_heartbeat.rpc.show import WAKEUP_SOURCES
from reveille_heartbeat.usecases.issues.authors import requester_of
from reveille_heartbeat.usecases.issues.issue_names import IssueRef
from reveille_heartbeat.usecases.repeats import Repeatable
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.carrier import checked
from reveille_runtime.errors import PermissionDenied
from reveille_runtime.ids import new_id
from reveille_runtime.reasons import reason_name
from reveille_runtime.requests import fingerprint
from reveille_runtime.validation import Violations

E = TypeVar("E", bound=StrEnum)
MAX_BATCH = 200
MAX_BATCH_BYTES = 3 << 20
MAX_PROMPT = 100_000
MAX_TITLE = 200
MAX_KEY = 512
MAX_IDEMPOTENCY_KEY = 255
MAX_COMMENTS = 100
_MAX_USER = 128
_IDENTIFIER = re.compile(r"[A-Z][A-Z0-9]{0,9}-[1-9][0-9]*")
_MAX_IDENTIFIER = 30
_MAX_FACTS = 200
LONGEST = timedelta(days=30)
# The one service whose occurrence keys count; everybody else has idempotency keys.
KEY_MAKER = "autopilot"


def one_id(field: str, text: str) -> UUID:
    """Parse a request's only id."""
    found = Violations()
    parsed = found.uuid(field, text)
    found.check()
    return parsed


def batch(found: Violations, field: str, items: Iterable[Message], size: int) -> None:
    """Check how much one call carries."""
    count = len(list(items))
    if not 1 <= count <= MAX_BATCH:
        found.add(field, f"must have 1 to {MAX_BATCH} entries")
    elif size > MAX_BATCH_BYTES:
        found.add(field, f"is larger than {MAX_BATCH_BYTES} bytes in all")


def issue_ref(found: Violations, field: str, text: str) -> IssueRef:
    """Parse an issue's id, or its identifier in whatever case."""
    name = text.strip().upper()
    if len(name) <= _MAX_IDENTIFIER and _IDENTIFIER.fullmatch(name):
        return name
    return found.uuid(field, text)


def states(found: Violations, field: str, values: Iterable[int], known: Mapping[int, E]) -> list[E]:
    """Parse a filter."""
    return [found.enum(f"{field}[{at}]", value, known) for at, value in enumerate(values)]


def reasons(found: Violations, field: str, values: Iterable[int]) -> list[str]:
    """Parse a filter by the reasons that rows have."""
    parsed = []
    for at, value in enumerate(values):
        name = reason_name(value)
        if name is None:
            found.add(f"{field}[{at}]", "must be a reason")
        else:
            parsed.append(name)
    return parsed


def repeatable(actor: Actor, method: str, request: Message, request_id: str) -> Repeatable | None:
    """Say by what a repeat of this request would be known."""
    if not request_id:
        return None
    return Repeatable(actor.principal, method, request_id, fingerprint(request))


def origin(found: Violations, field: str, message: wakeup_pb2.Origin, actor: Actor) -> Origin:
    """Parse who asks and for whom.

    Raises:
        PermissionDenied: somebody else than the key maker sends an occurrence key.
    """
    key = found.text(f"{field}.occurrence_key", message.occurrence_key, maximum=MAX_KEY)
    if key and not (actor.kind is CallerKind.SERVICE and actor.subject == KEY_MAKER):
        raise PermissionDenied(
            "CALLER_NOT_ALLOWED",
            f"only {KEY_MAKER} may fill {field}.occurrence_key; use an idempotency key",
            {"field": f"{field}.occurrence_key"},
        )
    if actor.kind is CallerKind.USER:
        # A person speaks for nobody else; who answers for it is for the rules to say.
        if message.accountable_user_id or message.originator_user_id or message.autopilot_run_id:
            found.add(field, "is for services; leave it empty")
        return Origin(
            originator_user_id=actor.subject, trace_carrier=checked(message.trace_carrier)
        )
    user = f"{field}.originator_user_id"
    accountable = f"{field}.accountable_user_id"
    run = f"{field}.autopilot_run_id"
    return Origin(
        occurrence_key=key or None,
        originator_user_id=found.text(user, message.originator_user_id, maximum=_MAX_USER),
        accountable_user_id=found.text(accountable, message.accountable_user_id, maximum=_MAX_USER),
        autopilot_run_id=found.text(run, message.autopilot_run_id, maximum=64),
        trace_carrier=checked(message.trace_carrier),
    )


def payload(found: Violations, field: str, message: wakeup_pb2.Payload) -> Payload:
    """Parse what the agent gets to read; the body is bytes and is never looked into."""
    if len(message.facts) > _MAX_FACTS:
        found.add(f"{field}.facts", f"has more than {_MAX_FACTS} entries")
    facts = {
        found.text(f"{field}.facts", name, maximum=256): found.text(
            f"{field}.facts[{name}]", value, maximum=8_192, strip=False
        )
        for name, value in message.facts.items()
    }
    if message.delivery_id and message.body:
        found.add(f"{field}.delivery_id", "must be empty when the body travels")
    delivery = found.optional_uuid(f"{field}.delivery_id", message.delivery_id)
    return Payload(
        content_type=found.text(f"{field}.content_type", message.content_type, maximum=256),
        body=message.body,
        delivery_id="" if delivery is None else str(delivery),
        facts=facts,
    )


def source(found: Violations, field: str, value: int, actor: Actor) -> WakeupSource:
    """Parse where a wish comes from; a person's comes from the person, a timer's from heartbeat."""
    parsed = found.enum(field, value, WAKEUP_SOURCES)
    if parsed is WakeupSource.TIMER:
        found.add(field, "is for the agents' own timers")
    elif actor.kind is CallerKind.USER and parsed is not WakeupSource.ON_DEMAND:
        found.add(field, "must be on_demand: a person asks for it now")
    return parsed


def issue(found: Violations, field: str, text: str) -> tuple[UUID | None, str]:
    """Parse which issue it is about, if any: by its id, or by its identifier, not yet looked up."""
    if not text:
        return None, ""
    ref = issue_ref(found, field, text)
    return (ref, "") if isinstance(ref, UUID) else (None, ref)


def comments(found: Violations, field: str, message: wakeup_pb2.Wakeup) -> tuple[UUID, ...]:
    """Parse which comments it is about, each once and in order."""
    if len(message.comment_ids) > MAX_COMMENTS:
        found.add(f"{field}.comment_ids", f"has more than {MAX_COMMENTS} entries")
    if message.comment_ids and not message.issue_id:
        found.add(f"{field}.comment_ids", "needs issue_id: comments belong to an issue")
    parsed = [
        found.uuid(f"{field}.comment_ids[{at}]", each)
        for at, each in enumerate(message.comment_ids[:MAX_COMMENTS])
    ]
    return tuple(dict.fromkeys(parsed))


def wish(found: Violations, field: str, message: wakeup_pb2.Wakeup, actor: Actor) -> Wish:
    """Parse a wish to wake an agent; its row gets its id here."""
    parsed = origin(found, f"{field}.origin", message.origin, actor)
    key = found.text(
        f"{field}.idempotency_key", message.idempotency_key, maximum=MAX_IDEMPOTENCY_KEY
    )
    if key and parsed.occurrence_key is not None:
        found.add(f"{field}.idempotency_key", "must be empty beside an occurrence key")
    agent_id = found.optional_uuid(f"{field}.agent_id", message.agent_id)
    squad_id = found.optional_uuid(f"{field}.squad_id", message.squad_id)
    if bool(message.agent_id) == bool(message.squad_id):
        found.add(f"{field}.agent_id", "give either an agent or a squad")
    issue_id, identifier = issue(found, f"{field}.issue_id", message.issue_id)
    return Wish(
        wakeup_id=new_id(),
        workspace_id=found.uuid(f"{field}.workspace_id", message.workspace_id),
        # A squad's leader is looked up with everything else.
        agent_id=agent_id or NOBODY,
        squad_id=squad_id,
        source=source(found, f"{field}.source", message.source, actor),
        wake_reason=found.text(f"{field}.reason", message.reason, minimum=1, maximum=100),
        title=found.text(f"{field}.title", message.title, minimum=1, maximum=MAX_TITLE),
        prompt=found.text(f"{field}.prompt", message.prompt, maximum=MAX_PROMPT, strip=False),
        issue_id=issue_id,
        issue_identifier=identifier,
        comment_ids=comments(found, field, message),
        caller=actor.principal,
        idempotency_key=key or None,
        origin=parsed,
        payload=payload(found, f"{field}.payload", message.payload),
        requester=requester_of(actor),
        task_key=found.text(f"{field}.task_key", message.task_key, maximum=MAX_IDEMPOTENCY_KEY),
        fresh_session=message.fresh_session,
    )


def assignment(
    agent_id: UUID,
    workspace_id: UUID,
    title: str,
    description: str,
    actor: Actor,
    who: Origin,
    what: Payload,
) -> Wish:
    """Make the wish that goes with an issue; it gets the issue's id when that is made."""
    return Wish(
        wakeup_id=new_id(),
        workspace_id=workspace_id,
        agent_id=agent_id,
        source=WakeupSource.ASSIGNMENT,
        wake_reason="issue_assigned",
        title=title,
        prompt=description,
        issue_id=None,
        caller=actor.principal,
        idempotency_key=None,
        origin=who,
        payload=what,
        requester=requester_of(actor),
    )


def settings(found: Violations, field: str, value: Struct, maximum: int = 65_536) -> dict[str, Any]:
    """Parse an object, such as an adapter's settings."""
    try:
        parsed: dict[str, Any] = MessageToDict(value)
    except ValueError:
        # The only thing that an object can hold and JSON cannot.
        found.add(field, "contains a number that JSON cannot hold")
        return {}
    if len(value.SerializeToString()) > maximum:
        found.add(field, f"is larger than {maximum} bytes")
    if _has_nul(parsed):
        found.add(field, "contains a NUL character", "INVALID_TEXT")
    return parsed


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
    return isinstance(value, list) and any(_has_nul(item) for item in value)
