"""What the demo holds against what it saw: one line for each promise. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from google.protobuf.message import Message

from reveille.autopilot.v1.autopilot_pb2 import Autopilot
from reveille_cli.apis import Service
from reveille_cli.demo.github import EVENT
from reveille_cli.demo.stage import PUBLISHER
from reveille_cli.demo.story import RunStory, Story
from reveille_cli.jsonform import plain
from reveille_cli.stack.keys import LOCAL_USER

SUBJECT = "lighthouse-crew/beacon#42"
"""What the example's issue is called; only who has read the body can know it."""


@dataclass(frozen=True, slots=True)
class Check:
    """A promise, and whether it was kept."""

    promise: str
    kept: bool
    found: str = ""
    """What was seen; of interest when the promise was broken."""


def check_story(story: Story) -> list[Check]:
    """Judge everything but the traces."""
    return [
        *_posts(story),
        *_hooked(story),
        *_scheduled(story),
        *_by_hand(story),
        _explained(story),
    ]


def _posts(story: Story) -> Iterator[Check]:
    first, again, forged = story.posts.first, story.posts.again, story.posts.forged
    yield Check(
        "GitHub's request is accepted, and answered with its delivery and its run",
        first.code == HTTPStatus.OK
        and first.status == "accepted"
        and bool(first.text("delivery_id"))
        and bool(first.text("run_id")),
        f"{first.code} {dict(first.document)}",
    )
    yield Check(
        "the same request again is a duplicate of that delivery",
        again.code == HTTPStatus.OK
        and again.status == "duplicate"
        and again.text("delivery_id") == first.text("delivery_id"),
        f"{again.code} {dict(again.document)}",
    )
    yield Check(
        "the same body with a bad signature is refused with 401",
        forged.code == HTTPStatus.UNAUTHORIZED and not forged.text("run_id"),
        f"{forged.code} {dict(forged.document)}",
    )
    yield _fields(
        "its delivery is stored as sent: event, action, id, valid signature, sent twice",
        story.delivery,
        {
            "state": "dispatched",
            "event": EVENT,
            "action": "opened",
            "dedupe_id": story.posts.request.delivery,
            "signature_state": "valid",
            "attempt_count": 2,
            "body_bytes": len(story.posts.request.body),
            "run_id": first.text("run_id"),
        },
    )
    yield _fields(
        "the forged one is kept as rejected, and made no run",
        story.rejected,
        {
            "state": "rejected",
            "reason": "invalid_signature",
            "signature_state": "invalid",
            "run_id": "",
        },
    )
    yield Check(
        "three requests made one run", story.runs_of_hook == 1, f"{story.runs_of_hook} runs"
    )


def _hooked(story: Story) -> Iterator[Check]:
    seen, rule = story.webhook, story.stage.on_issue
    yield _run(
        "the webhook's run is completed",
        seen,
        {"state": "completed", "execution_mode": "run_only", "source": "webhook"},
    )
    yield from _agent_process("the webhook's agent", seen)
    subject = str(seen.answer.get("subject", "")) if seen else ""
    yield Check(
        f"the agent has read GitHub's body: it tells of {SUBJECT}",
        subject.startswith(SUBJECT) and seen is not None and SUBJECT in seen.output,
        subject or "no answer",
    )
    yield _answers(
        f"{PUBLISHER}, who published the trigger, answers for what the webhook does",
        seen,
        rule,
        {"accountable_user_id": PUBLISHER, "attribution_source": "trigger_owner"},
    )


def _scheduled(story: Story) -> Iterator[Check]:
    seen, rule = story.schedule, story.stage.each_minute
    yield _fields(
        "the cron trigger fired: the scheduler's occurrence is settled",
        story.execution,
        {"state": "success", "scope_id": story.stage.schedule.trigger_id},
    )
    yield _run(
        "the schedule's run is completed",
        seen,
        {"state": "completed", "execution_mode": "create_issue", "source": "schedule"},
    )
    yield from _agent_process("the schedule's agent", seen)
    yield _fields(
        "its issue was made and the agent has done it",
        seen.issue if seen else None,
        {"status": "done", "occurrence_key": seen.run.occurrence_key if seen else ""},
    )
    yield _answers(
        f"{LOCAL_USER}, who published the trigger, answers for what the schedule does",
        seen,
        rule,
        {"accountable_user_id": LOCAL_USER, "attribution_source": "trigger_owner"},
    )


def _by_hand(story: Story) -> Iterator[Check]:
    seen = story.manual
    yield _run(
        "the run by hand is completed",
        seen,
        {"state": "completed", "execution_mode": "create_issue", "source": "manual"},
    )
    yield _fields("its issue is done", seen.issue, {"status": "done"})
    yield _answers(
        f"{LOCAL_USER}, who asked for it, answers for it",
        seen,
        story.stage.by_hand,
        {
            "originator_user_id": LOCAL_USER,
            "accountable_user_id": LOCAL_USER,
            "attribution_source": "direct_human",
        },
    )


def _explained(story: Story) -> Check:
    told = {each.service for each in story.why.findings}
    return Check(
        "asked why, the gateway, autopilot and heartbeat each tell their part",
        told >= {Service.WEBHOOK, Service.AUTOPILOT, Service.HEARTBEAT} and not story.why.silent,
        f"only {', '.join(sorted(told)) or 'nobody'} had something to say",
    )


def _agent_process(who: str, seen: RunStory | None) -> Iterator[Check]:
    count = len(seen.attempts) if seen else 0
    yield Check(f"{who} was woken once", count == 1, f"{count} attempts")
    yield _fields(
        f"{who} was a process, and it ended well",
        seen.attempt if seen else None,
        {"state": "succeeded", "exit_code": 0},
    )


def _run(promise: str, seen: RunStory | None, wanted: dict[str, Any]) -> Check:
    return _fields(promise, seen.run if seen else None, wanted)


def _answers(promise: str, seen: RunStory | None, rule: Autopilot, wanted: dict[str, Any]) -> Check:
    """Judge the attribution of a run, down to the agent's own record of it."""
    check = _run(promise, seen, {**wanted, "rule_version_id": rule.rule_version_id})
    attempt = seen.attempt if seen else None
    if attempt is None or attempt.responsible_user_id != wanted["accountable_user_id"]:
        named = "nobody" if attempt is None else attempt.responsible_user_id or "nobody"
        return Check(promise, False, f"{check.found}; heartbeat names {named}")
    return check


def _fields(promise: str, message: Message | None, wanted: dict[str, Any]) -> Check:
    """Judge the fields of a message by their printed form."""
    if message is None:
        return Check(promise, False, "nothing came")
    values = plain(message)
    found = {name: values[name] for name in wanted}
    return Check(promise, found == wanted, _differences(found, wanted))


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} is {found[name]!r}, not {value!r}"
        for name, value in wanted.items()
        if found[name] != value
    )
