"""Keys, titles, rights, versions and what a schedule may say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from tests.unit.autopilot.builders import NOON, a_trigger, a_webhook, an_autopilot

from reveille_autopilot.domain.accepting import schedule_refusals
from reveille_autopilot.domain.admission import Occasion, freeze
from reveille_autopilot.domain.attribution import Attribution, Candidates
from reveille_autopilot.domain.gate import Judgement, Rule, Verdict
from reveille_autopilot.domain.keys import (
    generation_key,
    request_key,
    schedule_key,
    webhook_key,
)
from reveille_autopilot.domain.models import EventFilter, Run, ScheduleConfig, Trigger
from reveille_autopilot.domain.permissions import Standing
from reveille_autopilot.domain.states import (
    AttributionSource,
    Change,
    ExecutionMode,
    MemberRole,
    RunSource,
    RunState,
)
from reveille_autopilot.domain.template import render_title, unknown_token
from reveille_autopilot.domain.versions import Restamp, restamps, snapshot, trigger_facts
from reveille_autopilot.usecases import messages
from reveille_cron import Expression, parse

TRIGGER = UUID(int=7)


def test_one_instant_has_one_key() -> None:
    planned = datetime(2026, 11, 29, 22, tzinfo=UTC)
    key = schedule_key(TRIGGER, planned)
    assert key == f"schedule:{TRIGGER}:2026-11-29T22:00:00Z"
    tokyo = planned.astimezone(timezone(timedelta(hours=9)))
    assert schedule_key(TRIGGER, tokyo) == key
    with pytest.raises(ValueError, match="whole second"):
        schedule_key(TRIGGER, planned + timedelta(microseconds=1))


def test_keys_of_the_other_sources() -> None:
    assert webhook_key(TRIGGER) == f"webhook:{TRIGGER}"
    manual = request_key(RunSource.MANUAL, TRIGGER, "user:ann", "r")
    assert manual == f"manual:{TRIGGER}:user:ann:r"
    assert request_key(RunSource.API, TRIGGER, "service:x", "r").startswith("api:")
    with pytest.raises(ValueError, match="not asked for"):
        request_key(RunSource.SCHEDULE, TRIGGER, "user:ann", "r")


def test_two_callers_never_share_a_key() -> None:
    names = ("ann", "ann:b", "ann%3Ab", "%", ":" * 128, "x" * 128)
    pairs = [(name, request) for name in names for request in ("c", "b:c", "r" * 128)]
    keys = {request_key(RunSource.MANUAL, TRIGGER, f"user:{name}", each) for name, each in pairs}
    assert len(keys) == len(pairs)
    assert max(map(len, keys)) <= 512


def test_a_clean_run_after_one_that_was_given_up_has_a_key_of_its_own() -> None:
    assert [generation_key("k", number) for number in range(3)] == ["k", "k#2", "k#3"]


@pytest.mark.parametrize(
    ("template", "offender"),
    [
        ("", None),
        ("plain", None),
        ("on {{date}}", None),
        ("on {{ date }}", None),
        ("{{user}}", "{{user}}"),
        ("{{date}} {{}}", "{{}}"),
        ("{{Date}}", "{{Date}}"),
        ("{{date", None),
    ],
)
def test_the_first_unknown_placeholder_is_named(template: str, offender: str | None) -> None:
    assert unknown_token(template) == offender


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("UTC", "2026-03-01"),
        ("Asia/Tokyo", "2026-03-02"),
        ("America/Los_Angeles", "2026-03-01"),
        # A name that the zones no longer know must not stop a run.
        ("Mars/Olympus", "2026-03-01"),
    ],
)
def test_the_date_is_the_triggers_own(zone: str, shown: str) -> None:
    moment = datetime(2026, 3, 1, 16, tzinfo=UTC)
    assert render_title("At {{date}}, {{ date }}", "T", moment, zone) == f"At {shown}, {shown}"


def test_without_a_template_the_title_is_the_rules() -> None:
    assert render_title("", "Title {{date}}", NOON, "UTC") == "Title {{date}}"
    assert len(render_title("{{date}}" * 100, "T", NOON, "UTC")) == 200


OWNER, ADMIN = Standing("o", MemberRole.OWNER), Standing("a", MemberRole.ADMIN)
MEMBER, STRANGER = Standing("m", MemberRole.MEMBER), Standing("s", None)
OPERATOR = Standing("op", None, operator=True)
SERVICE = Standing(None, None, service=True)


def test_who_may_what() -> None:
    everybody = (OWNER, ADMIN, MEMBER, STRANGER, OPERATOR, SERVICE)
    assert [each.belongs for each in everybody] == [True, True, True, False, True, True]
    assert [each.manages for each in everybody] == [True, True, False, False, True, False]
    writes = [each.may_write("x", collaborates=False) for each in everybody]
    assert writes == [True, True, False, False, True, False]
    assert [each.may_grant("x") for each in everybody] == writes
    assert MEMBER.may_grant("m")
    # A collaborator may change the rule, and let nobody else in.
    assert MEMBER.may_write("x", collaborates=True)
    assert not MEMBER.may_grant("x")
    # Who left the workspace has no right any more, creator or collaborator.
    assert not STRANGER.may_write("s", collaborates=True)
    assert SERVICE.may_run("x", collaborates=False)
    assert MEMBER.started("m")
    assert not STRANGER.started("s")
    assert not MEMBER.started(None)


def test_a_version_says_what_the_live_triggers_were() -> None:
    live = a_trigger()
    gone = a_trigger(deleted_at=NOON)
    hook = a_webhook(EventFilter("issues", ("opened",)))
    version = snapshot(
        an_autopilot(rule_sequence=5),
        [live, gone, hook],
        version_id=TRIGGER,
        change=Change.TRIGGER_CREATED,
        publisher_user_id="ann",
        now=NOON,
    )
    assert (version.sequence, version.prompt, version.publisher_user_id) == (5, "Look.", "ann")
    assert {each["trigger_id"] for each in version.triggers} == {str(live.id), str(hook.id)}
    assert trigger_facts(hook)["event_filters"] == [{"event": "issues", "actions": ["opened"]}]
    assert trigger_facts(live)["cron"] == "0 9 * * *"
    assert not any("token" in name for name in trigger_facts(hook))


def test_what_each_edit_moves_responsibility_for() -> None:
    moved = {change: restamps(change) for change in Change}
    assert {change for change, what in moved.items() if what is Restamp.ALL} == {
        Change.UPDATED,
        Change.PAUSED,
        Change.RESUMED,
        Change.ARCHIVED,
    }
    assert {change for change, what in moved.items() if what is Restamp.NONE} == {
        Change.CREATED,
        Change.RENAMED,
        Change.TRIGGER_DELETED,
        Change.RETARGETED,
    }


@pytest.mark.parametrize(
    ("cron", "zone", "fields"),
    [
        ("0 9 * * *", "Europe/Berlin", []),
        ("@daily", "", []),
        ("61 * * * *", "UTC", ["cron"]),
        ("0 0 30 2 *", "UTC", ["cron"]),
        ("0 9 * * *", "Local", ["time_zone"]),
        ("", "../etc/passwd", ["cron", "time_zone"]),
    ],
)
def test_every_refusal_of_a_schedule_is_told(cron: str, zone: str, fields: list[str]) -> None:
    assert [field for field, _ in schedule_refusals(cron, zone, NOON)] == fields


def frozen(trigger: Trigger | None, verdict: Verdict = Verdict.ADMIT) -> Run:
    occasion = Occasion(
        run_id=TRIGGER,
        key="k",
        source=RunSource.SCHEDULE,
        trigger_id=None,
        planned_at=NOON,
        delivery_id=None,
        payload_ready=True,
        request_fingerprint=None,
        trace_carrier={},
    )
    attribution = Attribution("ann", AttributionSource.TRIGGER_OWNER)
    judgement = Judgement(verdict, None if verdict is Verdict.ADMIT else "why", "", attribution)
    rule = an_autopilot(
        execution_mode=ExecutionMode.CREATE_ISSUE, issue_title_template="On {{date}}"
    )
    return freeze(occasion, Rule(rule, trigger, Candidates()), rule, judgement, NOON)


def test_a_run_freezes_its_rule_and_a_refused_one_has_its_outcome() -> None:
    tokyo = a_trigger(config=ScheduleConfig("0 0 * * *", "Pacific/Kiritimati"))
    run = frozen(tokyo)
    skipped = frozen(None, Verdict.SKIP)
    assert (run.state, run.title) == (RunState.PENDING, "On 2026-03-03")
    assert run.next_attempt_at is not None
    assert run.finished_at is None
    assert (skipped.state, skipped.reason) == (RunState.SKIPPED, "why")
    assert (skipped.next_attempt_at, skipped.finished_at) == (None, NOON)
    assert skipped.title == "On 2026-03-02"


def test_a_cron_is_read_once_however_often_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading one takes half a millisecond, in which nothing is admitted; a list shows hundreds."""
    read: list[str] = []

    def counted(cron: str) -> Expression:
        read.append(cron)
        return parse(cron)

    monkeypatch.setattr(messages, "parse", counted)
    rule = an_autopilot()
    shown = [
        messages.next_fire(a_trigger(config=ScheduleConfig("17 3 5 11 *", place)), rule, NOON)
        for place in ("UTC", "UTC", "Europe/Berlin")
    ]
    assert read == ["17 3 5 11 *"]
    assert shown[0] == shown[1] == datetime(2026, 11, 5, 3, 17, tzinfo=UTC)
    assert shown[2] == datetime(2026, 11, 5, 2, 17, tzinfo=UTC)
