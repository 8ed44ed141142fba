"""Random wishes, runs and cancellations against a small model: nothing is lost, nothing doubled."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from tests.integration.heartbeat.desk import Desk

from reveille_heartbeat.domain.states import WAKEUP_TERMINAL, WakeupState
from reveille_heartbeat.domain.values import Wakeup, Wish
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_wakeup
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import Cancellation
from reveille_testkit.database import TestDatabase

_LIVE = "(r.state IN ('queued', 'scheduled_retry') OR r.occupied)"


@dataclass(slots=True)
class Model:
    """What was asked for, and which comments an agent must get to read."""

    desk: Desk
    dice: random.Random
    agents: list[UUID] = field(default_factory=list)
    issues: list[UUID] = field(default_factory=list)
    asked: dict[UUID, Wish] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    async def step(self) -> None:
        """Do one thing at random."""
        (move,) = self.dice.choices([self.ask, self.begin, self.end, self.cancel], [5, 3, 3, 1])
        await move()

    async def ask(self) -> None:
        """Enqueue a few wishes in one call."""
        wishes = [await self._wish() for _ in range(self.dice.randint(1, 4))]
        answers = await self.desk.wake(*wishes)
        for wish, answer in zip(wishes, answers, strict=True):
            if answer.existed:
                assert wish.idempotency_key is not None
            else:
                assert answer.wakeup_id == wish.wakeup_id
                self.asked[wish.wakeup_id] = wish

    async def _wish(self) -> Wish:
        dice, agent = self.dice, self.dice.choice(self.agents)
        issue = dice.choice([*self.issues, *self.issues, None])
        kind = dice.randrange(5)
        if kind == 0:
            self.keys.append(f"webhook:{len(self.keys)}")
            return self.desk.keyed(self.keys[-1], agent, issue)
        if kind == 1 and issue is not None:
            return self.desk.commented(agent, issue, await self.desk.comment(issue))
        if kind == 2:
            return self.desk.wish(agent, issue, idempotency_key=str(dice.randrange(20)))
        return self.desk.wish(agent, issue, task_key=dice.choice(["", "nightly"]))

    async def begin(self) -> None:
        """Claim a queued run whose issue nobody holds."""
        row = await self.desk.rows.fetchrow(
            "SELECT wakeup_id FROM runs q WHERE state = 'queued' AND NOT EXISTS ("
            " SELECT FROM runs o WHERE o.issue_id = q.issue_id AND o.occupied)"
            " ORDER BY run_id LIMIT 1"
        )
        if row is not None:
            await self.desk.begin(row["wakeup_id"])

    async def end(self) -> None:
        """End a run at work."""
        rows = await self.desk.rows.fetch("SELECT wakeup_id FROM runs WHERE occupied ORDER BY 1")
        if rows:
            await self.desk.end(self.dice.choice(rows)["wakeup_id"])

    async def cancel(self) -> None:
        """Cancel an occurrence, known or not, unless its run is at work."""
        key = self.dice.choice([*self.keys, f"webhook:{len(self.keys)}"])
        at_work = await self.desk.rows.fetchval(
            "SELECT true FROM runs r JOIN wakeup_requests w USING (wakeup_id)"
            " WHERE w.occurrence_key = $1 AND r.occupied",
            key,
        )
        if at_work:
            return
        if key not in self.keys:
            self.keys.append(key)
        await self.desk.cancel([Cancellation(self.desk.workspace_id, key, "max")])

    async def wakeups(self) -> dict[UUID, Wakeup]:
        """Read all rows there are."""
        ids = await self.desk.rows.fetch("SELECT wakeup_id FROM wakeup_requests")
        rows = await self.desk.rows.fetch(Q["find_wakeups"].sql, [row[0] for row in ids])
        return {row["wakeup_id"]: to_wakeup(row) for row in rows}

    async def check(self) -> None:
        """Hold what is always true."""
        wakeups = await self.wakeups()
        assert wakeups.keys() == self.asked.keys()
        joined: dict[UUID, int] = {}
        for wakeup in wakeups.values():
            assert (wakeup.finished_at is not None) == (wakeup.state in WAKEUP_TERMINAL)
            if wakeup.joined_wakeup_id is None:
                continue
            target = wakeups[wakeup.joined_wakeup_id]
            joined[target.wakeup_id] = joined.get(target.wakeup_id, 0) + 1
            # One hop, of the same agent and issue, and never into or out of an occurrence.
            assert target.joined_wakeup_id is None
            assert (target.agent_id, target.issue_id) == (wakeup.agent_id, wakeup.issue_id)
            assert target.occurrence_key is wakeup.occurrence_key is None
            assert set(wakeup.comment_ids) <= set(target.comment_ids)
            if wakeup.state is not WakeupState.COALESCED:
                assert target.state is wakeup.state
        for wakeup in wakeups.values():
            assert wakeup.coalesced_count == joined.get(wakeup.wakeup_id, 0)
        doubled = await self.desk.rows.fetch(
            "SELECT r.issue_id FROM runs r JOIN wakeup_requests w USING (wakeup_id)"
            f" WHERE {_LIVE} AND r.issue_id IS NOT NULL AND w.occurrence_key IS NULL"
            " GROUP BY r.issue_id HAVING count(*) > 1"
        )
        assert doubled == []

    async def drain(self) -> None:
        """Let everything come to its end."""
        for _ in range(10_000):
            await self.begin()
            await self.end()
            if await self.desk.rows.fetchval(f"SELECT count(*) = 0 FROM runs r WHERE {_LIVE}"):
                return
        raise AssertionError("there is no end to it")


@pytest.mark.parametrize("seed", [4, 11])
async def test_nothing_is_lost_and_nothing_doubled(database: TestDatabase, seed: int) -> None:
    desk = await Desk.open(database)
    model = Model(desk, random.Random(seed))
    model.agents = [await desk.agent(name) for name in ("ann", "bob", "cid")]
    model.issues = [await desk.issue() for _ in range(3)]
    for at in range(60):
        await model.step()
        if at % 5 == 0:
            await model.check()
    await model.drain()
    await model.check()

    wakeups = await model.wakeups()
    assert {each.state for each in wakeups.values()} <= {
        WakeupState.COMPLETED,
        WakeupState.CANCELLED,
    }
    for wakeup_id, wish in model.asked.items():
        wakeup = wakeups[wakeup_id]
        if wish.origin.occurrence_key is None:
            # Only occurrences were cancelled: all else came to its run, with what it said.
            assert wakeup.state is WakeupState.COMPLETED
        carrier = wakeups[wakeup.joined_wakeup_id or wakeup_id]
        assert set(wish.comment_ids) <= set(carrier.comment_ids)
