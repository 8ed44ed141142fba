"""A desk for tests of issues: people and runs that write about them, and what became of wakes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import OWNER, World

from reveille.heartbeat.v1 import agent_pb2, issue_pb2, wakeup_pb2
from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceStub
from reveille_runtime.access import Role
from reveille_runtime.db import Database
from reveille_runtime.errors import DomainError, InvalidArgument
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_testkit.waiting import eventually

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@dataclass(frozen=True)
class Wake:
    """A wakeup as a test compares it."""

    agent_id: str
    reason: str
    state: str
    why: str = ""


class Desk:
    """One workspace's issues; `me` is its owner."""

    def __init__(self, world: World, rows: Rows, database: Database | None = None) -> None:
        self._database = database
        self.world = world
        self.rows = rows
        self.me: Any = self.user(OWNER, Role.OWNER)

    @property
    def database(self) -> Database:
        """The service's own way to its rows."""
        assert self._database is not None
        return self._database

    def user(self, user_id: str, role: Role = Role.MEMBER) -> Any:
        """Call as a member."""
        return IssueServiceStub(self.world.client.user(user_id, self.world.workspace_id, role))

    def run(self, run_id: str) -> Any:
        """Call as the agent at work in a run."""
        token = self.world.client.keys.run(UUID(run_id), self.world.workspace_id)
        return IssueServiceStub(self.world.client.channel(token))

    async def create(self, title: str = "Fix it", by: Any = None, **more: Any) -> issue_pb2.Issue:
        """Make an issue."""
        made = await (by or self.me).CreateIssue(
            issue_pb2.CreateIssueRequest(
                workspace_id=str(self.world.workspace_id), title=title, **more
            )
        )
        issue: issue_pb2.Issue = made.issue
        return issue

    async def update(
        self, issue_id: str, by: Any = None, etag: str = "", **fields: Any
    ) -> issue_pb2.Issue:
        """Change what is given."""
        answer = await (by or self.me).UpdateIssue(
            issue_pb2.UpdateIssueRequest(
                issue_id=issue_id, etag=etag, update_mask=FieldMask(paths=list(fields)), **fields
            )
        )
        issue: issue_pb2.Issue = answer.issue
        return issue

    async def get(self, issue_id: str, by: Any = None, **more: Any) -> issue_pb2.Issue:
        """Read an issue."""
        answer = await (by or self.me).GetIssue(
            issue_pb2.GetIssueRequest(issue_id=issue_id, **more)
        )
        issue: issue_pb2.Issue = answer.issue
        return issue

    async def say(
        self, issue_id: str, body: str = "Look at this.", by: Any = None, **more: Any
    ) -> issue_pb2.AddCommentResponse:
        """Add a comment."""
        answer: issue_pb2.AddCommentResponse = await (by or self.me).AddComment(
            issue_pb2.AddCommentRequest(issue_id=issue_id, body=body, **more)
        )
        return answer

    async def block(self, issue_id: str, blocker_id: str) -> issue_pb2.Issue:
        """Make one issue block another."""
        answer = await self.me.AddRelation(
            issue_pb2.AddRelationRequest(issue_id=issue_id, blocker_issue_id=blocker_id)
        )
        issue: issue_pb2.Issue = answer.issue
        return issue

    async def wakes(self, issue_id: str) -> list[Wake]:
        """Give an issue's wakes, oldest first."""
        rows = await self.rows.fetch(
            "SELECT agent_id, wake_reason, state, reason FROM wakeup_requests WHERE issue_id = $1"
            " ORDER BY wakeup_id",
            UUID(issue_id),
        )
        return [
            Wake(str(row["agent_id"]), row["wake_reason"], row["state"], row["reason"])
            for row in rows
        ]

    async def reasons(self, issue_id: str) -> list[tuple[str, str]]:
        """Give why an issue's agents were woken, and where that stands."""
        return [(wake.reason, wake.state) for wake in await self.wakes(issue_id)]

    async def run_of(self, issue_id: str) -> str:
        """Name the newest run on an issue."""
        run_id = await self.rows.fetchval(
            "SELECT run_id FROM runs WHERE issue_id = $1 ORDER BY run_id DESC LIMIT 1",
            UUID(issue_id),
        )
        return str(run_id)

    async def begin(self, issue_id: str) -> str:
        """Have the run that waits for an issue be at work, as after a claim; give it."""
        run_id = await self.run_of(issue_id)
        async with self.rows.transaction():
            await self.rows.execute(
                "UPDATE runs SET state = 'running', occupied = true, started_at = clock(),"
                " lease_token = gen_random_uuid(), lease_expires_at = clock() + '1 hour',"
                " executor_id = 'elsewhere', place = 'elsewhere' WHERE run_id = $1",
                UUID(run_id),
            )
            await self.rows.execute(
                "UPDATE wakeup_requests SET state = 'claimed', claimed_at = clock()"
                " WHERE run_id = $1",
                UUID(run_id),
            )
            await self.rows.execute(
                "UPDATE issues SET execution_run_id = $2 WHERE issue_id = $1",
                UUID(issue_id),
                UUID(run_id),
            )
        return run_id

    async def end(self, run_id: str) -> None:
        """Have a run be over, with its follow-up done."""
        await self.rows.execute(
            "UPDATE runs SET state = 'succeeded', occupied = false, lease_token = NULL,"
            " lease_expires_at = NULL, finished_at = clock(), follow_up_done_at = clock()"
            " WHERE run_id = $1",
            UUID(run_id),
        )
        await self.rows.execute(
            "UPDATE wakeup_requests SET state = 'completed', finished_at = clock()"
            " WHERE run_id = $1",
            UUID(run_id),
        )

    async def events(self, issue_id: str) -> list[str]:
        """Name what the feed tells of an issue, in order."""
        rows = await self.rows.fetch(
            "SELECT type FROM feed WHERE subject_id = $1 ORDER BY xid, seq", issue_id
        )
        return [row["type"] for row in rows]

    async def agents(self, *names: str) -> list[agent_pb2.Agent]:
        """Make agents."""
        return [await self.world.agent(name) for name in names]

    async def wish(self, agent_id: str, issue: str, **more: Any) -> wakeup_pb2.WakeupResult:
        """Wake an agent about an issue, named in any way."""
        agent = agent_pb2.Agent(agent_id=agent_id)
        return await self.world.wake(agent, issue_id=issue, **more)


async def open_desk(stage: Stage, rows: Rows) -> Desk:
    """Open a workspace whose queue nobody serves, and in which nothing happens by itself."""
    service = await stage.start(
        engine_concurrency=0, runtime_presence=3600, sweep_interval=3600, recovery_interval=3600
    )
    world = World(service.client, stage.folder)
    await world.put()
    return Desk(world, rows, service.database)


async def refused(call: Any) -> DomainError:
    """Give the refusal of a call."""
    with pytest.raises(DomainError) as caught, as_domain_errors():
        await call
    return caught.value


async def fields_refused(call: Any) -> set[str]:
    """Name the fields that a call is refused for."""
    error = await refused(call)
    assert isinstance(error, InvalidArgument), error
    return {violation.field for violation in error.violations}


async def blocked_writers(rows: Rows, count: int) -> None:
    """Wait until so many transactions wait for a row that is locked."""
    await eventually(
        lambda: rows.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        ),
        f"{count} writers wait",
        until=lambda waiting: waiting >= count,
    )
