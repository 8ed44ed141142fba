"""The payload file: everything an agent gets to read, as one JSON document."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reveille_heartbeat.domain.discussion import Comment
from reveille_heartbeat.domain.values import Agent, Issue, Payload, Run, Wakeup
from reveille_runtime import plain_json

# More than any sender's event has. What holds more is shown as the text that it is: reading it is
# one step, in which nothing else of the process goes on, and takes many times its size.
MOST_VALUES = 100_000


@dataclass(frozen=True, slots=True)
class Joined:
    """A wake that was joined to this one: it says something, too."""

    wakeup: Wakeup
    prompt: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How much there is that the document does not tell, because it would be too much."""

    joined: int = 0
    comments: int = 0


def build(
    *,
    run: Run,
    wakeup: Wakeup,
    prompt: str,
    agent: Agent,
    issue: Issue | None,
    payload: Payload,
    body: bytes,
    body_path: str,
    joined: Sequence[Joined] = (),
    comments: Sequence[Comment] = (),
    left_out: LeftOut = LeftOut(),
) -> dict[str, Any]:
    """Put the document together; `body` is the payload's, wherever it came from."""
    return {
        "run_id": str(run.run_id),
        "attempt": run.attempt,
        "wakeup_id": str(wakeup.wakeup_id),
        "workspace_id": str(run.workspace_id),
        "agent": {"agent_id": str(agent.agent_id), "name": agent.name, "adapter": agent.adapter},
        "wake": {
            "source": wakeup.source.value,
            "reason": wakeup.wake_reason,
            "title": wakeup.title,
            "prompt": prompt,
            "task_key": wakeup.task_key,
            "fresh_session": wakeup.fresh_session,
            "notes": dict(wakeup.context),
        },
        "comments": [_comment(each) for each in comments],
        "issue": None if issue is None else _issue(issue),
        "context": {
            "originator": wakeup.originator_user_id,
            "accountable": wakeup.accountable_user_id,
            "responsible": run.responsible_user_id,
            "occurrence_key": wakeup.occurrence_key or "",
            "autopilot_run_id": wakeup.autopilot_run_id,
        },
        "trace": {"traceparent": run.agent_carrier.get("traceparent", "")},
        "payload": _payload(payload, body),
        "payload_file": body_path,
        "joined": [
            {
                "wakeup_id": str(each.wakeup.wakeup_id),
                "reason": each.wakeup.wake_reason,
                "title": each.wakeup.title,
                "prompt": each.prompt,
                "notes": dict(each.wakeup.context),
                "payload": _payload(each.payload, each.payload.body),
            }
            for each in joined
        ],
        "left_out": {"joined": left_out.joined, "comments": left_out.comments},
    }


def dump(document: Mapping[str, Any]) -> bytes:
    """Write the document; a lone surrogate in a sender's JSON stays an escape."""
    return json.dumps(document, ensure_ascii=True).encode()


def dump_in_steps(document: Mapping[str, Any]) -> bytes:
    """Write the same, a value at a time: other threads have their turn between any two."""
    try:
        return "".join(json.JSONEncoder(ensure_ascii=True).iterencode(document)).encode()
    except RecursionError:
        # Written in one step it goes as deep as it was read.
        return dump(document)


def _comment(comment: Comment) -> dict[str, Any]:
    return {
        "comment_id": str(comment.comment_id),
        "author_kind": comment.author.kind.value,
        "author_id": comment.author.id,
        "body": comment.body,
        "create_time": comment.created_at.isoformat(),
    }


def _issue(issue: Issue) -> dict[str, Any]:
    return {
        "issue_id": str(issue.issue_id),
        "identifier": issue.identifier,
        "title": issue.title,
        "description": issue.description,
        "status": issue.status.value,
    }


def _payload(payload: Payload, body: bytes) -> dict[str, Any]:
    """Show the body parsed when it is JSON that can be, as text when it is text, else in base64."""
    shown: dict[str, Any] = {"content_type": payload.content_type, "facts": dict(payload.facts)}
    if payload.delivery_id:
        shown["delivery_id"] = payload.delivery_id
    if not body:
        return shown
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return {**shown, "body_base64": base64.b64encode(body).decode("ascii")}
    if plain_json.holds_at_most(MOST_VALUES, body):
        with contextlib.suppress(ValueError, RecursionError):
            return {**shown, "body": plain_json.loads(text)}
    return {**shown, "body_text": text}
