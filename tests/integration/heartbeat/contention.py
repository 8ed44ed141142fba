"""Many callers over shared issues, and what must be true of the ledger afterwards.

A journal, kept by a trigger of the test, tells in which order runs waited and what they held.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from tests.integration.heartbeat.kit import OWNER, Client, World

from reveille.heartbeat.v1 import hold_pb2, issue_pb2, run_pb2, wakeup_pb2
from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceStub
from reveille.heartbeat.v1.run_pb2_grpc import RunServiceStub
from reveille_runtime.access import Role
from reveille_runtime.errors import DomainError, FailedPrecondition, NotFound
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_testkit.waiting import eventually

JOURNAL = """
CREATE TABLE heartbeat.run_journal (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_id uuid NOT NULL,
    agent_id uuid NOT NULL,
    issue_id uuid,
    state text NOT NULL,
    occupied boolean NOT NULL,
    ready_rank smallint NOT NULL,
    priority smallint NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE FUNCTION heartbeat.keep_journal() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO heartbeat.run_journal
        (run_id, agent_id, issue_id, state, occupied, ready_rank, priority, created_at)
    VALUES (NEW.run_id, NEW.agent_id, NEW.issue_id, NEW.state, NEW.occupied, NEW.ready_rank,
        NEW.priority, NEW.created_at);
    RETURN NULL;
END
$$;
CREATE TRIGGER journal AFTER INSERT OR UPDATE OF state, occupied, ready_rank ON heartbeat.runs
FOR EACH ROW EXECUTE FUNCTION heartbeat.keep_journal();
"""
# The journal's times are those of the writes; what a claim could not have seen yet is left out.
MARGIN = timedelta(seconds=2)
# What rules refuse under this load; anything else that a caller gets is a failure.
REFUSALS = (FailedPrecondition, NotFound)
_PRIORITIES = (
    issue_pb2.ISSUE_PRIORITY_CRITICAL,
    issue_pb2.ISSUE_PRIORITY_HIGH,
    issue_pb2.ISSUE_PRIORITY_MEDIUM,
    issue_pb2.ISSUE_PRIORITY_LOW,
)
OPEN = "state IN ('queued', 'deferred', 'claimed', 'coalesced')"


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    workspaces: int
    agents: int
    issues: int
    wakeups: int
    callers: int


@dataclass(slots=True)
class Scene:
    """One workspace under load."""

    world: World
    issues: Any
    runs: Any
    agent_ids: list[str] = field(default_factory=list)
    issue_ids: list[str] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)


class Load:
    """Makes wishes and disturbs them, through any replica."""

    def __init__(self, clients: Sequence[Client], chance: random.Random, size: Size) -> None:
        self._clients = clients
        self._chance = chance
        self._size = size
        self._scenes: list[Scene] = []
        self._key = 0
        self.refused: Counter[str] = Counter()

    async def prepare(self) -> None:
        """Make workspaces, agents and issues."""
        for number in range(self._size.workspaces):
            client = self._clients[number % len(self._clients)]
            world = World(client, client.keys.folder)
            await world.put(prefix=f"W{number}")
            admin = client.user(OWNER, world.workspace_id, Role.ADMIN)
            self._scenes.append(Scene(world, IssueServiceStub(admin), RunServiceStub(admin)))
        await self._side_by_side(self._agent(at) for at in range(self._size.agents))
        await self._side_by_side(self._issue(at) for at in range(self._size.issues))

    async def run(self) -> None:
        """Wish and disturb until all wishes are made."""
        batch = 20
        await self._side_by_side(
            self._round(min(batch, self._size.wakeups - at))
            for at in range(0, self._size.wakeups, batch)
        )
        for scene in self._scenes:
            for issue_id in sorted(scene.held):
                await scene.issues.ReleaseIssueTree(
                    hold_pb2.ReleaseIssueTreeRequest(root_issue_id=issue_id)
                )

    async def _side_by_side(self, work: Iterable[Awaitable[None]]) -> None:
        turns = asyncio.Semaphore(self._size.callers)

        async def one(each: Awaitable[None]) -> None:
            async with turns:
                await each

        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(one(each))

    async def _agent(self, at: int) -> None:
        scene = self._scenes[at % len(self._scenes)]
        agent = await scene.world.agent(f"agent-{at}", max_concurrent_runs=1 + at % 3)
        scene.agent_ids.append(agent.agent_id)

    async def _issue(self, at: int) -> None:
        scene = self._scenes[at % len(self._scenes)]
        made = await scene.issues.CreateIssue(
            issue_pb2.CreateIssueRequest(
                workspace_id=str(scene.world.workspace_id),
                title=f"issue {at}",
                priority=_PRIORITIES[at % len(_PRIORITIES)],
                assignee_agent_id=scene.agent_ids[at % len(scene.agent_ids)],
            )
        )
        scene.issue_ids.append(made.issue.issue_id)

    async def _round(self, wishes: int) -> None:
        scene = self._chance.choice(self._scenes)
        world = World(
            self._chance.choice(self._clients), scene.world.folder, scene.world.workspace_id
        )
        await self._call(world.enqueue(*(self._wish(scene) for _ in range(wishes))))
        for disturb in self._chance.choices(
            (self._hold, self._release, self._cancel, self._cancel_run, self._reassign), k=2
        ):
            await self._call(disturb(scene))

    async def _call(self, call: Awaitable[Any]) -> None:
        try:
            with as_domain_errors():
                await call
        except REFUSALS as refusal:
            self.refused[refusal.reason] += 1
        except DomainError as error:
            raise AssertionError(f"a caller got {error.reason}: {error.message}") from error

    def _wish(self, scene: Scene) -> wakeup_pb2.Wakeup:
        origin = wakeup_pb2.Origin(accountable_user_id=OWNER)
        if self._chance.random() < 0.3:
            self._key += 1
            origin.occurrence_key = f"webhook:{self._key}"
            scene.keys.append(origin.occurrence_key)
        about = self._chance.random() < 0.7
        return wakeup_pb2.Wakeup(
            workspace_id=str(scene.world.workspace_id),
            agent_id=self._chance.choice(scene.agent_ids),
            source=wakeup_pb2.WAKEUP_SOURCE_AUTOMATION,
            reason="look",
            title="Look at it",
            issue_id=self._chance.choice(scene.issue_ids) if about else "",
            task_key="" if about else f"task-{self._chance.randrange(50)}",
            origin=origin,
        )

    async def _hold(self, scene: Scene) -> None:
        issue_id = self._chance.choice(scene.issue_ids)
        await scene.issues.HoldIssueTree(hold_pb2.HoldIssueTreeRequest(root_issue_id=issue_id))
        scene.held.add(issue_id)

    async def _release(self, scene: Scene) -> None:
        if scene.held:
            issue_id = self._chance.choice(sorted(scene.held))
            scene.held.discard(issue_id)
            await scene.issues.ReleaseIssueTree(
                hold_pb2.ReleaseIssueTreeRequest(root_issue_id=issue_id)
            )

    async def _cancel(self, scene: Scene) -> None:
        if scene.keys:
            key = self._chance.choice(scene.keys)
            cancellation = wakeup_pb2.OccurrenceCancellation(
                workspace_id=str(scene.world.workspace_id), occurrence_key=key
            )
            await scene.world.wakeups.CancelWakeups(
                wakeup_pb2.CancelWakeupsRequest(cancellations=[cancellation])
            )

    async def _cancel_run(self, scene: Scene) -> None:
        listed = await scene.runs.ListRuns(
            run_pb2.ListRunsRequest(
                workspace_id=str(scene.world.workspace_id),
                states=[run_pb2.RUN_STATE_QUEUED, run_pb2.RUN_STATE_RUNNING],
                page_size=5,
            )
        )
        for run in listed.runs[:1]:
            await scene.runs.CancelRun(run_pb2.CancelRunRequest(run_id=run.run_id))

    async def _reassign(self, scene: Scene) -> None:
        request = issue_pb2.UpdateIssueRequest(
            issue_id=self._chance.choice(scene.issue_ids),
            assignee_agent_id=self._chance.choice(scene.agent_ids),
        )
        request.update_mask.paths.append("assignee_agent_id")
        await scene.issues.UpdateIssue(request)


class Ledger:
    """What is asked of the rows when everything has come to rest."""

    def __init__(self, rows: asyncpg.Connection[asyncpg.Record]) -> None:
        self._rows = rows

    async def at_rest(self, timeout: float) -> None:
        """Wait until no wakeup is open and no run holds anything."""

        async def look() -> tuple[int, int]:
            wakeups = await self._rows.fetchval(
                f"SELECT count(*) FROM heartbeat.wakeup_requests WHERE {OPEN}"
            )
            runs = await self._rows.fetchval(
                "SELECT count(*) FROM heartbeat.runs WHERE follow_up_done_at IS NULL"
                " AND (occupied OR finished_at IS NULL)"
            )
            return wakeups, runs

        await eventually(
            look, "everything at rest", until=lambda seen: seen == (0, 0), timeout=timeout
        )

    async def check(self, wishes: int) -> dict[str, int]:
        """Hold every promise against the rows; give how the wakeups ended."""
        await self._no_cap_exceeded()
        await self._one_run_per_issue()
        await self._better_first()
        await self._every_wish_explained(wishes)
        await self._told_once()
        ends = await self._rows.fetch(
            "SELECT state, count(*) AS n FROM heartbeat.wakeup_requests GROUP BY state"
        )
        return {row["state"]: row["n"] for row in ends}

    async def _spans(self, column: str) -> dict[UUID, list[tuple[datetime, datetime]]]:
        """From claim to the end of the follow-up, each inside its own transaction's locks."""
        found = await self._rows.fetch(
            f"SELECT {column} AS of, started_at, follow_up_done_at FROM heartbeat.runs"
            f" WHERE started_at IS NOT NULL AND {column} IS NOT NULL"
        )
        spans: defaultdict[UUID, list[tuple[datetime, datetime]]] = defaultdict(list)
        for row in found:
            spans[row["of"]].append((row["started_at"], row["follow_up_done_at"]))
        return spans

    async def _no_cap_exceeded(self) -> None:
        caps = await self._rows.fetch("SELECT agent_id, max_concurrent_runs FROM heartbeat.agents")
        cap_of = {row["agent_id"]: row["max_concurrent_runs"] for row in caps}
        for agent_id, spans in (await self._spans("agent_id")).items():
            assert most_at_once(spans) <= cap_of[agent_id], agent_id

    async def _one_run_per_issue(self) -> None:
        for issue_id, spans in (await self._spans("issue_id")).items():
            assert most_at_once(spans) <= 1, issue_id

    async def _better_first(self) -> None:
        """No run was claimed while a better one of its agent waited and could be claimed."""
        rows = await self._rows.fetch(
            "SELECT at, run_id, agent_id, issue_id, state, occupied, ready_rank, priority,"
            " created_at FROM heartbeat.run_journal ORDER BY seq"
        )
        waits, claims, busy = read_journal(rows)
        for claim in claims:
            for wait in waits[claim.agent_id]:
                seen = wait.since < claim.at - MARGIN and claim.at + MARGIN < wait.until
                if seen and wait.turn < claim.turn:
                    taken = any(
                        since < claim.at + MARGIN and claim.at - MARGIN < until
                        for since, until in busy.get(wait.issue_id, ())
                    )
                    assert taken, f"{claim.run_id} was claimed before {wait.run_id}"

    async def _every_wish_explained(self, wishes: int) -> None:
        left = await self._rows.fetchval(
            "SELECT count(*) FROM heartbeat.wakeup_requests WHERE caller = 'service:autopilot'"
        )
        assert left == wishes
        unexplained = await self._rows.fetch(
            "SELECT wakeup_id, state, reason FROM heartbeat.wakeup_requests"
            " WHERE finished_at IS NULL OR (state <> 'completed' AND reason = '')"
        )
        assert unexplained == []

    async def _told_once(self) -> None:
        told = await self._rows.fetchval(
            "SELECT count(*) FROM (SELECT w.wakeup_id FROM heartbeat.wakeup_requests w"
            " LEFT JOIN heartbeat.feed f ON f.type = 'wakeup.settled'"
            " AND f.subject_id = w.wakeup_id::text"
            " GROUP BY w.wakeup_id HAVING count(f.seq) <> 1) AS wrong"
        )
        assert told == 0


@dataclass(frozen=True, slots=True)
class Wait:
    """A stretch of time in which a run waited under one rank."""

    run_id: UUID
    issue_id: UUID | None
    turn: tuple[int, int, datetime, UUID]
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Claim:
    """The moment at which a run was taken."""

    run_id: UUID
    agent_id: UUID
    turn: tuple[int, int, datetime, UUID]
    at: datetime


Busy = dict[UUID | None, list[tuple[datetime, datetime]]]


def read_journal(
    rows: Sequence[asyncpg.Record],
) -> tuple[defaultdict[UUID, list[Wait]], list[Claim], Busy]:
    """Turn the journal into waits per agent, claims, and times at which issues were held."""
    by_run: defaultdict[UUID, list[asyncpg.Record]] = defaultdict(list)
    for row in rows:
        by_run[row["run_id"]].append(row)
    waits: defaultdict[UUID, list[Wait]] = defaultdict(list)
    claims: list[Claim] = []
    busy: defaultdict[UUID | None, list[tuple[datetime, datetime]]] = defaultdict(list)
    for run_id, told in by_run.items():
        told.sort(key=lambda row: row["at"])
        for row, after in zip(told, [*told[1:], None], strict=True):
            turn = (row["ready_rank"], row["priority"], row["created_at"], run_id)
            until = row["at"] if after is None else after["at"]
            if row["state"] == "queued":
                waits[row["agent_id"]].append(Wait(run_id, row["issue_id"], turn, row["at"], until))
            elif row["state"] == "running":
                claims.append(Claim(run_id, row["agent_id"], turn, row["at"]))
            if row["occupied"] and row["issue_id"] is not None:
                busy[row["issue_id"]].append((row["at"], until))
    return waits, claims, dict(busy)


def most_at_once(spans: Sequence[tuple[datetime, datetime]]) -> int:
    """Count how many of the spans overlap at most; one may begin when another ends."""
    moments = sorted(
        [(until, -1) for _, until in spans] + [(since, 1) for since, _ in spans],
    )
    most = now = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most
