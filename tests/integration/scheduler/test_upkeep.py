"""What the scheduler does for itself: forgetting, mending hints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.scheduler.conftest import (
    JOB,
    Owner,
    Replica,
    break_rule,
    start_at,
    wish,
)

from reveille_runtime.db import Tx
from reveille_runtime.stretches import PATIENCE_SECONDS
from reveille_scheduler.domain.calendar import LAST
from reveille_scheduler.domain.rule import Hook, Once
from reveille_scheduler.domain.scope import ScopeDeletion
from reveille_scheduler.store import scopes as store
from reveille_scheduler.store.scopes import LockedScope, Move
from reveille_scheduler.usecases.check_scopes import CheckScopes
from reveille_scheduler.usecases.preview import Place, Preview
from reveille_scheduler.usecases.retention import Retention
from reveille_testkit.database import TestDatabase

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
KEPT = timedelta(days=30)


async def forget(replica: Replica, stretch: int = 1000) -> Mapping[str, object]:
    return await Retention(replica.database, KEPT, stretch, replica.clock)()


async def a_history(replica: Replica, days: int, scope_id: str = "nightly") -> None:
    await replica.scopes.put([wish(scope_id)])
    for day in range(days):
        await start_at(replica, NOON + day * DAY + SECOND)
        await replica.run()


@pytest.mark.parametrize("stretch", [2, 1000])
async def test_old_occurrences_are_forgotten_in_stretches(replica: Replica, stretch: int) -> None:
    await a_history(replica, 5)
    await start_at(replica, NOON + 33 * DAY)
    told = await forget(replica, stretch)

    assert told["executions_removed"] == 3
    assert told["finished"]
    left = [each.plan_time for each in await replica.ledger()]
    assert left == [NOON + 4 * DAY, NOON + 3 * DAY]


async def test_a_live_scopes_newest_occurrence_is_kept_for_ever(replica: Replica) -> None:
    """Planning counts from it: without it the past would be planned again."""
    await a_history(replica, 3)
    await start_at(replica, NOON + 400 * DAY)
    await forget(replica)
    assert [each.plan_time for each in await replica.ledger()] == [NOON + 2 * DAY]

    await replica.scopes.delete([ScopeDeletion("tidy", "folder", "nightly", 2)])
    told = await forget(replica)
    # The tombstone outlives its history by as long as an owner's late word could come.
    assert (told["executions_removed"], told["scopes_removed"]) == (1, 0)
    assert (await replica.scopes.page("tidy", None, 9))[0].deleted
    await start_at(replica, NOON + 431 * DAY)
    assert (await forget(replica))["scopes_removed"] == 1
    assert await replica.scopes.page("tidy", None, 9) == []


async def test_no_key_younger_than_its_jobs_window_is_forgotten(replica: Replica) -> None:
    await replica.jobs.register(replace(JOB, catch_up_window=60 * DAY))
    await a_history(replica, 2)
    await start_at(replica, NOON + 50 * DAY)

    assert (await forget(replica))["executions_removed"] == 0


async def test_what_runs_or_is_promised_is_not_forgotten(
    replica: Replica, database: TestDatabase
) -> None:
    await a_history(replica, 3)
    admin = await database.admin()
    await admin.execute(
        "UPDATE scheduler.executions SET state = 'failed', next_retry_at = finished_at"
        " WHERE plan_time = $1",
        NOON,
    )
    await admin.execute(
        "UPDATE scheduler.executions SET state = 'running', finished_at = NULL,"
        " lease_token = gen_random_uuid(), stale_after = started_at WHERE plan_time = $1",
        NOON + DAY,
    )
    await start_at(replica, NOON + 100 * DAY)

    assert (await forget(replica))["executions_removed"] == 0


async def test_a_long_forgetting_stops_in_time_and_says_that_there_is_more(
    replica: Replica,
) -> None:
    await a_history(replica, 6)
    await start_at(replica, NOON + 60 * DAY)
    clock = iter([0.0, PATIENCE_SECONDS])

    assert await Retention(replica.database, KEPT, 1, lambda: next(clock))() == {
        "executions_removed": 0,
        "scopes_removed": 0,
        "requests_removed": 0,
        "finished": False,
    }


async def test_a_wrong_hint_is_mended(replica: Replica, database: TestDatabase) -> None:
    """As after new zone data, or for a rule that an older release could not read."""
    await replica.scopes.put(
        [wish("late"), wish("broken"), wish("right"), wish("asked", rule=Hook())]
    )
    await start_at(replica, NOON - timedelta(hours=1))
    admin = await database.admin()
    await admin.execute(
        "UPDATE scheduler.scopes SET next_plan_at = next_plan_at + interval '1 day'"
        " WHERE scope_id = 'late'"
    )
    await admin.execute(
        "UPDATE scheduler.scopes SET next_plan_at = NULL, plan_error = 'unreadable'"
        " WHERE scope_id = 'broken'"
    )
    check = CheckScopes(replica.database, stretch=2)
    while await check() is not None:
        pass

    scopes = {each.id: each for each in await replica.scopes.page("tidy", None, 9)}
    assert {scopes[name].next_plan_at for name in ("late", "broken", "right")} == {NOON}
    assert scopes["broken"].plan_error == ""


async def test_a_rule_that_became_unreadable_is_said_to_be(
    replica: Replica, database: TestDatabase
) -> None:
    await replica.scopes.put([wish("bad"), wish("good")])
    admin = await database.admin()
    await admin.execute("UPDATE scheduler.scopes SET cron = '@reboot' WHERE scope_id = 'bad'")
    check = CheckScopes(replica.database)
    assert await check() is None
    assert await check() is None

    scopes = {each.id: each for each in await replica.scopes.page("tidy", None, 9)}
    assert scopes["bad"].next_plan_at is None
    assert "@reboot" in scopes["bad"].plan_error
    assert scopes["good"].next_plan_at == NOON


async def test_a_failure_over_one_scope_does_not_end_the_walk(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica.scopes.put([wish("bad", cron="7 7 * * *"), wish("good")])
    await replica.jobs.register(replace(JOB, schedule_delay=timedelta(hours=1)))
    break_rule(monkeypatch, "7 7 * * *")
    assert await CheckScopes(replica.database)() is None

    scopes = {each.id: each for each in await replica.scopes.page("tidy", None, 9)}
    assert scopes["bad"].next_plan_at is None
    assert scopes["bad"].plan_error == "OverflowError: date value out of range"
    assert scopes["good"].next_plan_at == NOON + timedelta(hours=1)


async def test_an_instant_at_the_end_of_time_may_have_a_delay(replica: Replica) -> None:
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    await replica.scopes.put([wish("early", rule=Once(end)), wish("good")])
    await replica.jobs.register(replace(JOB, schedule_delay=timedelta(minutes=1)))
    assert await CheckScopes(replica.database)() is None
    await replica.scopes.put([wish("late", rule=Once(end))])
    preview = await Preview(replica.database)(None, Place("tidy", "folder", "late"), NOON, 1)

    scopes = {each.id: each for each in await replica.scopes.page("tidy", None, 9)}
    assert {scopes[name].next_plan_at for name in ("early", "late")} == {LAST}
    assert preview.times == ((end, LAST),)
    assert scopes["good"].next_plan_at == NOON + timedelta(minutes=1)
    assert not any(each.plan_error for each in scopes.values())


@pytest.mark.parametrize("moved_by", ["planning", "an edit"])
async def test_a_hint_that_moved_meanwhile_is_left_alone(
    replica: Replica, database: TestDatabase, monkeypatch: pytest.MonkeyPatch, moved_by: str
) -> None:
    """Between reading and mending: planning moves the hint, or an edit gives it that very value."""
    await replica.scopes.put([wish()])
    admin = await database.admin()
    wrong = NOON - timedelta(hours=1)
    await admin.execute("UPDATE scheduler.scopes SET next_plan_at = $1", wrong)
    expected = NOON + DAY if moved_by == "planning" else wrong
    correct = store.correct

    async def after_a_move(tx: Tx, found: Sequence[tuple[LockedScope, Move]]) -> int:
        if moved_by == "planning":
            await admin.execute("UPDATE scheduler.scopes SET next_plan_at = $1", expected)
        else:
            await replica.scopes.put([wish(cron="0 11 * * *", revision=2)])
        return await correct(tx, found)

    monkeypatch.setattr(store, "correct", after_a_move)
    await CheckScopes(replica.database)()

    (stored,) = await replica.scopes.page("tidy", None, 9)
    assert stored.next_plan_at == expected


async def test_a_job_whose_delay_changed_gets_new_hints(replica: Replica, owner: Owner) -> None:
    await replica.jobs.register(replace(JOB, schedule_delay=timedelta(hours=1)))
    await replica.scopes.put([wish()])
    await replica.jobs.register(JOB)
    await CheckScopes(replica.database)()

    assert (await replica.scopes.page("tidy", None, 9))[0].next_plan_at == NOON
