"""The enqueueing of heartbeat without a service around it: rows, use cases, nobody who claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from reveille_heartbeat.domain.states import RunState, WakeupState
from reveille_heartbeat.domain.values import (
    Origin,
    Payload,
    Requester,
    RequesterKind,
    Wakeup,
    WakeupSource,
    Wish,
)
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_wakeup
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import CancelWakeups
from reveille_heartbeat.usecases.wakeups.deciding import Decider
from reveille_heartbeat.usecases.wakeups.ending import settle_wakeup
from reveille_heartbeat.usecases.wakeups.enqueue_wakeups import EnqueueWakeups
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_heartbeat.usecases.wakeups.known_wishes import Enqueued
from reveille_heartbeat.usecases.wakeups.promote_deferred import PromoteStranded, Promotion
from reveille_runtime.db import Database
from reveille_runtime.hints import Notifier
from reveille_runtime.ids import new_id
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.database import TestDatabase

MAX = Requester(RequesterKind.USER, "max")
ROBOT = Requester(RequesterKind.SERVICE, "robot")


class Desk:
    """One workspace, the use cases over its rows, and runs that begin and end as a test says."""

    def __init__(self, database: TestDatabase, db: Database, rows: asyncpg.Connection[Any]) -> None:
        self.database = database
        self.db = db
        self.rows = rows
        self.workspace_id = uuid4()
        self.runtime_id = uuid4()
        telemetry, notifier = Telemetry.off(), Notifier(db, enabled=False)
        self.decider = Decider(telemetry, new_id)
        self.enqueuing = Enqueuing(self.decider)
        self.promotion = Promotion(self.decider)
        self.enqueue = EnqueueWakeups(db, telemetry, notifier, self.enqueuing)
        consequences = Consequences(self.enqueuing, self.promotion, new_id)
        spans = RunSpans(telemetry)
        self.cancel = CancelWakeups(db, notifier, spans, self.promotion, consequences)
        self.sweep = PromoteStranded(db, notifier, self.promotion)
        self._issues = 0

    @classmethod
    async def open(cls, database: TestDatabase, *, pool_max: int = 12) -> Desk:
        """Make the workspace."""
        db = await database.open("heartbeat", pool_max=pool_max)
        desk = cls(database, db, await database.connect("reveille_heartbeat_app"))
        await desk.rows.execute(
            "INSERT INTO workspaces (workspace_id, issue_prefix, default_responsible_user_id,"
            " revision) VALUES ($1, 'ABC', 'olga', 1)",
            desk.workspace_id,
        )
        await desk.rows.execute(
            "INSERT INTO runtimes (runtime_id, workspace_id, name, presence_expires_at)"
            " VALUES ($1, $2, 'local', clock() + interval '1 day')",
            desk.runtime_id,
            desk.workspace_id,
        )
        return desk

    async def agent(self, name: str = "ann", **columns: Any) -> UUID:
        """Make an agent."""
        given: dict[str, Any] = {
            "agent_id": uuid4(),
            "workspace_id": self.workspace_id,
            "name": name,
            "adapter": "echo",
            "runtime_id": self.runtime_id,
            "owner_user_id": "olga",
            "invocation_rule": "workspace",
            "max_concurrent_runs": 5,
        } | columns
        await self.rows.execute(_insert("agents", given, "run_timeout, idle_timeout", "'0', '0'"))
        agent_id: UUID = given["agent_id"]
        return agent_id

    async def issue(self, assignee: UUID | None = None, **columns: Any) -> UUID:
        """Make an issue: ABC-1, ABC-2 and so on."""
        self._issues += 1
        given: dict[str, Any] = {
            "issue_id": uuid4(),
            "workspace_id": self.workspace_id,
            "number": self._issues,
            "identifier": f"ABC-{self._issues}",
            "title": "Fix it",
            "status": "todo",
            "assignee_agent_id": assignee,
        } | columns
        await self.rows.execute(_insert("issues", given))
        issue_id: UUID = given["issue_id"]
        return issue_id

    async def comment(self, issue_id: UUID, author: Requester = MAX, **columns: Any) -> UUID:
        """Say something on an issue."""
        given: dict[str, Any] = {
            "comment_id": new_id(),
            "issue_id": issue_id,
            "workspace_id": self.workspace_id,
            "author_kind": author.kind.value,
            "author_id": author.id,
            "body": "What about this?",
        } | columns
        await self.rows.execute(_insert("issue_comments", given))
        comment_id: UUID = given["comment_id"]
        return comment_id

    async def hold(self, issue_id: UUID) -> None:
        """Hold an issue and all below it."""
        await self.rows.execute(
            "INSERT INTO issue_tree_holds (hold_id, workspace_id, root_issue_id, mode, created_by)"
            " VALUES (gen_random_uuid(), $1, $2, 'pause', 'olga')",
            self.workspace_id,
            issue_id,
        )

    async def block(self, issue_id: UUID, blocker_id: UUID) -> None:
        """Let an issue wait for another."""
        await self.rows.execute(
            "INSERT INTO issue_relations (issue_id, blocker_issue_id) VALUES ($1, $2)",
            issue_id,
            blocker_id,
        )

    def wish(self, agent_id: UUID, issue_id: UUID | None = None, **changes: Any) -> Wish:
        """Describe a wish."""
        made = Wish(
            wakeup_id=new_id(),
            workspace_id=self.workspace_id,
            agent_id=agent_id,
            source=WakeupSource.AUTOMATION,
            wake_reason="robot_wants",
            title="Look at it",
            prompt="Please look.",
            issue_id=issue_id,
            caller="service:robot",
            idempotency_key=None,
            origin=Origin(),
            payload=Payload(),
            requester=ROBOT,
        )
        return replace(made, **changes)

    def keyed(self, key: str, agent_id: UUID, issue_id: UUID | None = None) -> Wish:
        """Describe a wish of an occurrence."""
        return self.wish(agent_id, issue_id, origin=Origin(occurrence_key=key))

    def commented(self, agent_id: UUID, issue_id: UUID, *comments: UUID, **changes: Any) -> Wish:
        """Describe the wish that goes with comments."""
        given = {"wake_reason": "issue_commented", "requester": MAX, "comment_ids": comments}
        return self.wish(agent_id, issue_id, **(given | changes))

    async def wake(self, *wishes: Wish) -> list[Enqueued]:
        """Enqueue them in one call."""
        return await self.enqueue(wishes)

    async def one(self, wish: Wish) -> Enqueued:
        """Enqueue one."""
        (answer,) = await self.enqueue([wish])
        return answer

    async def wakeup(self, wakeup_id: UUID) -> Wakeup:
        """Read a wakeup."""
        (row,) = await self.rows.fetch(Q["find_wakeups"].sql, [wakeup_id])
        return to_wakeup(row)

    async def states(self, answers: Sequence[Enqueued]) -> list[WakeupState]:
        """Read where wakeups stand now."""
        return [(await self.wakeup(each.wakeup_id)).state for each in answers]

    async def runs(self) -> int:
        """Count the attempts there are."""
        count: int = await self.rows.fetchval("SELECT count(*) FROM runs")
        return count

    async def begin(self, wakeup_id: UUID, **columns: Any) -> UUID:
        """Let the newest attempt of a wakeup begin, as a claim does."""
        run_id: UUID = (await self.wakeup(wakeup_id)).run_id or uuid4()
        await self.rows.execute(
            "UPDATE wakeup_requests SET state = 'claimed', claimed_at = clock()"
            " WHERE wakeup_id = $1 AND state = 'queued'",
            wakeup_id,
        )
        await self.set_run(
            run_id,
            {"state": "running", "occupied": True, "lease_token": uuid4()} | columns,
            started_at="clock()",
            lease_expires_at="clock() + interval '30 s'",
        )
        return run_id

    async def end(self, wakeup_id: UUID, state: RunState = RunState.SUCCEEDED, **more: Any) -> None:
        """End the newest attempt of a wakeup and all that follows from it, as a follow-up does."""
        async with self.db.transaction() as tx:
            wakeup = to_wakeup((await tx.fetch(Q["find_wakeups"], [wakeup_id]))[0])
            if wakeup.issue_id is not None:
                await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], [wakeup.issue_id])
            columns = {"state": state.value, "occupied": False, "lease_token": None} | more
            names = {**_DONE, "lease_expires_at": "NULL"}
            await tx.raw.execute(_update(columns, names), wakeup.run_id)
            await settle_wakeup(tx, wakeup, WakeupState.COMPLETED, "", "", None)
            if wakeup.issue_id is not None:
                await self.promotion.promote(tx, {wakeup.issue_id: wakeup.run_id})

    async def set_run(self, run_id: UUID, columns: Mapping[str, Any], **expressions: str) -> None:
        """Write an attempt's columns."""
        await self.rows.execute(_update(columns, expressions), run_id)


_DONE = {"finished_at": "clock()", "follow_up_done_at": "clock()"}


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, bool | int) else f"'{value}'"


def _insert(table: str, given: Mapping[str, Any], names: str = "", values: str = "") -> str:
    columns = ", ".join([*given, *([names] if names else [])])
    literals = ", ".join([*map(_literal, given.values()), *([values] if values else [])])
    return f"INSERT INTO {table} ({columns}) VALUES ({literals})"


def _update(given: Mapping[str, Any], expressions: Mapping[str, str]) -> str:
    parts = [f"{name} = {_literal(value)}" for name, value in given.items()]
    parts += [f"{name} = {value}" for name, value in expressions.items()]
    return f"UPDATE runs SET {', '.join(parts)} WHERE run_id = $1"
