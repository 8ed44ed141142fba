"""Where an accepted wish goes: into another wake, behind a run, to the queue, or nowhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from tests.unit.heartbeat.made import AGENT, FACTS, ISSUE, NOW, TARGET, WISH, wish
from tests.unit.heartbeat.test_enqueue_rules import BLOCKER, BY_ANN, BY_MAX, MAX, comment_wake

from reveille_heartbeat.domain.enqueue import Facts
from reveille_heartbeat.domain.limits import PastRun, Today, next_repeat, over_daily_cap
from reveille_heartbeat.domain.placing import (
    MAX_JOINED,
    MAX_TOLD_BYTES,
    OpenWake,
    Place,
    PlaceKind,
    Stage,
    Surroundings,
    place,
)
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.values import (
    HeartbeatPolicy,
    Origin,
    Payload,
    WakeupSource,
    Wish,
)

ON_ISSUE = replace(FACTS, issue=ISSUE)
ABOUT_ISSUE = wish(issue_id=ISSUE.issue_id)
KEYED = wish(origin=Origin(occurrence_key="webhook:1"), issue_id=ISSUE.issue_id)
QUEUED = OpenWake(UUID(int=40), Stage.QUEUED)
RETRY = OpenWake(UUID(int=41), Stage.RETRY, run_id=UUID(int=51))
DEFERRED = OpenWake(UUID(int=42), Stage.DEFERRED)
QUEUE, DEFER = Place(PlaceKind.QUEUE), Place(PlaceKind.DEFER)
BUSY = replace(ON_ISSUE, blockers=(BLOCKER,))
BOTH = (BY_MAX.comment_id, BY_ANN.comment_id)


def around(*open_wakes: OpenWake, busy: bool = True) -> Surroundings:
    return Surroundings(open_wakes, busy)


def join(target: OpenWake, *, hurry: bool = False) -> Place:
    return Place(PlaceKind.JOIN, target, hurry=hurry)


@pytest.mark.parametrize(
    ("wanted", "facts", "surroundings", "where"),
    [
        (WISH, FACTS, around(busy=False), QUEUE),
        (ABOUT_ISSUE, ON_ISSUE, around(busy=False), QUEUE),
        # Another agent's run, or this agent's own: who is at work cannot be told any more.
        (ABOUT_ISSUE, ON_ISSUE, around(), DEFER),
        # Without an issue nobody is waited for.
        (WISH, FACTS, around(), QUEUE),
        # The best to join is what has not begun.
        (ABOUT_ISSUE, ON_ISSUE, around(DEFERRED, RETRY, QUEUED), join(QUEUED)),
        (ABOUT_ISSUE, ON_ISSUE, around(DEFERRED, RETRY), join(RETRY)),
        (ABOUT_ISSUE, ON_ISSUE, around(DEFERRED), join(DEFERRED)),
        # A person does not wait for a retry's time.
        (
            comment_wake(),
            replace(ON_ISSUE, comments=(BY_MAX,)),
            around(RETRY),
            join(RETRY, hurry=True),
        ),
        (comment_wake(), replace(ON_ISSUE, comments=(BY_ANN,)), around(RETRY), join(RETRY)),
        # An occurrence is its own scope.
        (KEYED, ON_ISSUE, around(QUEUED), QUEUE),
        # What blocks the issue keeps no wake from joining or waiting.
        (ABOUT_ISSUE, BUSY, around(QUEUED), join(QUEUED)),
        (ABOUT_ISSUE, BUSY, around(), DEFER),
        (comment_wake(), replace(BUSY, comments=(BY_MAX,)), around(busy=False), QUEUE),
    ],
)
def test_where_a_wish_goes(
    wanted: Wish, facts: Facts, surroundings: Surroundings, where: Place
) -> None:
    assert place(wanted, facts, surroundings) == where


@pytest.mark.parametrize(
    ("queued", "almost"),
    [
        (replace(QUEUED, joined=MAX_JOINED), replace(QUEUED, joined=MAX_JOINED - 1)),
        (
            replace(QUEUED, told_bytes=MAX_TOLD_BYTES),
            replace(QUEUED, told_bytes=MAX_TOLD_BYTES - 1),
        ),
    ],
)
def test_nothing_joins_a_wake_whose_run_would_be_told_too_much(
    queued: OpenWake, almost: OpenWake
) -> None:
    assert place(WISH, FACTS, around(queued)) == QUEUE
    assert place(ABOUT_ISSUE, ON_ISSUE, around(queued)) == DEFER
    # The next wishes join the one that waits instead.
    assert place(ABOUT_ISSUE, ON_ISSUE, around(queued, DEFERRED)) == join(DEFERRED)
    assert place(WISH, FACTS, around(almost)) == join(almost)
    # What its run has not room for is asked what every run is asked.
    assert place(WISH, CAPPED, around(queued)).kind is PlaceKind.SKIP


def test_each_wish_that_joins_makes_the_wake_fuller() -> None:
    told = wish(prompt="für", payload=Payload(body=b"12345", facts={"ä": "12"}))
    met = QUEUED.joined_by(told, FACTS).joined_by(told, FACTS)

    assert (met.joined, met.told_bytes) == (2, 26)


def test_a_comment_is_told_once() -> None:
    facts = replace(ON_ISSUE, comments=(replace(BY_MAX, size=7), replace(BY_ANN, size=5)))
    one, both = (comment_wake(comment_ids=ids, prompt="") for ids in (BOTH[:1], BOTH))
    met = QUEUED.joined_by(one, replace(facts, comments=facts.comments[:1]))

    assert (met.comment_ids, met.told_bytes) == (BOTH[:1], 7)
    met = met.joined_by(both, facts)
    assert (met.comment_ids, met.told_bytes) == (BOTH, 12)


def ago(minutes: float, *, succeeded: bool = True, left_progress: bool = False) -> PastRun:
    return PastRun(NOW - timedelta(minutes=minutes), succeeded, left_progress)


ASSIGNED = replace(ABOUT_ISSUE, wake_reason="issue_assigned")
FRUITLESS = replace(
    ON_ISSUE,
    issue=replace(ISSUE, last_input_at=NOW - timedelta(hours=1)),
    past_runs=(ago(0.5), ago(5)),
)
RESTING = replace(
    FACTS,
    target=replace(
        TARGET, agent=replace(AGENT, heartbeat=HeartbeatPolicy(cooldown=timedelta(minutes=10)))
    ),
    past_runs=(ago(5),),
)
CAPPED = replace(
    FACTS,
    target=replace(TARGET, agent=replace(AGENT, heartbeat=HeartbeatPolicy(max_daily_runs=3))),
    today=Today(3),
)


HELD_BACK: list[tuple[Wish, Facts, Reason]] = [
    (ABOUT_ISSUE, BUSY, Reason.ISSUE_DEPENDENCIES_BLOCKED),
    (KEYED, BUSY, Reason.ISSUE_DEPENDENCIES_BLOCKED),
    (comment_wake(), replace(BUSY, comments=(BY_ANN,)), Reason.ISSUE_DEPENDENCIES_BLOCKED),
    (ASSIGNED, FRUITLESS, Reason.REWAKE_THROTTLED),
    (WISH, RESTING, Reason.COOLDOWN),
    (replace(WISH, source=WakeupSource.TIMER), RESTING, Reason.COOLDOWN),
    (WISH, CAPPED, Reason.DAILY_RUN_LIMIT),
]


@pytest.mark.parametrize(("wanted", "facts", "reason"), HELD_BACK)
def test_what_only_a_run_of_its_own_has_to_pass(wanted: Wish, facts: Facts, reason: Reason) -> None:
    where = place(wanted, facts, around(busy=False))

    assert where.kind is PlaceKind.SKIP
    assert where.refusal is not None
    assert where.refusal.reason is reason
    # Joining and waiting cost nothing.
    assert place(replace(wanted, origin=Origin()), facts, around(QUEUED)) == join(QUEUED)


@pytest.mark.parametrize(
    ("wanted", "facts"),
    [
        (replace(ASSIGNED, wake_reason="issue_children_completed"), FRUITLESS),
        (replace(ASSIGNED, fresh_session=True), FRUITLESS),
        (replace(ASSIGNED, comment_ids=(UUID(int=80),)), FRUITLESS),
        (replace(ASSIGNED, source=WakeupSource.ON_DEMAND, requester=MAX), FRUITLESS),
        (ASSIGNED, replace(FRUITLESS, issue=replace(ISSUE, last_input_at=NOW))),
        (replace(WISH, requester=MAX), RESTING),
        (replace(WISH, source=WakeupSource.ASSIGNMENT), RESTING),
        (WISH, replace(RESTING, past_runs=(ago(10),))),
        (WISH, replace(CAPPED, today=Today(2))),
    ],
)
def test_what_is_new_or_wanted_by_a_person_is_not_held_back(wanted: Wish, facts: Facts) -> None:
    assert place(wanted, facts, around(busy=False)) == QUEUE


def in_seconds(seconds: float | None) -> datetime | None:
    return None if seconds is None else NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("past", "wait"),
    [
        ([], None),
        ([ago(0.5)], None),
        ([ago(0.5), ago(9)], 90),
        ([ago(2), ago(9)], None),
        ([ago(0.5), ago(1), ago(9)], 210),
        ([ago(0.5), ago(1), ago(2), ago(3)], 450),
        ([ago(0.5)] + [ago(each) for each in range(1, 8)], 1770),
        # More than eight are not looked at, and nothing is older than six hours.
        ([ago(0.5)] + [ago(each) for each in range(1, 20)], 1770),
        ([ago(0.5), ago(361)], None),
        # Only fruitless successes count, from the newest on.
        ([ago(0.5), ago(1, left_progress=True), ago(2), ago(3)], None),
        ([ago(0.5), ago(1, succeeded=False), ago(2), ago(3)], None),
        ([ago(0.5), ago(1), ago(2, succeeded=False)], 90),
    ],
)
def test_each_further_fruitless_run_doubles_the_pause(
    past: list[PastRun], wait: float | None
) -> None:
    assert next_repeat(past, None, NOW) == in_seconds(wait)


@pytest.mark.parametrize(
    ("limits", "today", "reason"),
    [
        ({}, Today(1000, Decimal(10**9)), None),
        ({"max_daily_runs": 0}, Today(), Reason.DAILY_RUN_LIMIT),
        ({"max_daily_runs": 3}, Today(2), None),
        ({"max_daily_runs": 3}, Today(3), Reason.DAILY_RUN_LIMIT),
        ({"max_daily_cost_cents": 0}, Today(), Reason.DAILY_COST_LIMIT),
        ({"max_daily_cost_cents": 100}, Today(5, Decimal("99.999")), None),
        ({"max_daily_cost_cents": 100}, Today(5, Decimal(100)), Reason.DAILY_COST_LIMIT),
    ],
)
def test_a_cap_of_nought_refuses_everything_and_none_refuses_nothing(
    limits: dict[str, Any], today: Today, reason: Reason | None
) -> None:
    refusal = over_daily_cap(HeartbeatPolicy(**limits), today)

    assert (None if refusal is None else refusal.reason) is reason
