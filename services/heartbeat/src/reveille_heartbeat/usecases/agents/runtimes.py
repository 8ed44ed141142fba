"""Runtimes: places at which agents run, made known, reported and removed by their keepers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.runtimes import Runtime, RuntimeKind
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_runtime
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.listing import Listed, require_known, to_page
from reveille_heartbeat.usecases.visible import require_visible, unknown_workspace
from reveille_runtime import feed
from reveille_runtime.access import Actor, CallerKind, Role
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import Aborted, FailedPrecondition, NotFound
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.paging import Page

LOCAL = "local"
# How often agents may be bound to a runtime between a look and its locks.
_LOOKS = 5


class Runtimes:
    """Keeps the runtimes that report themselves; heartbeat's own renews itself."""

    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def register(
        self, runtime_id: UUID, workspace_id: UUID, name: str, metadata: Mapping[str, Any]
    ) -> Runtime:
        """Make a runtime known, away until it reports; a known name answers with what is there.

        Raises:
            NotFound: the workspace is not known here. FailedPrecondition: the name is heartbeat's.
        """
        if name == LOCAL:
            raise _own(name)

        async def register(tx: Tx) -> Runtime:
            if not await tx.fetch(Q["find_workspaces"], [workspace_id]):
                raise unknown_workspace(workspace_id)
            await tx.fetchval(Q["register_runtime"], runtime_id, workspace_id, name, dict(metadata))
            row = await tx.fetchrow(Q["find_runtime_by_name"], workspace_id, name)
            if row is None:
                # It was deleted between the two statements.
                raise Aborted("REQUEST_CONFLICT", f"runtime {name} was just removed; try again")
            return to_runtime(row)

        return await retrying_transaction(self._db, register, repeatable=True)

    async def report(
        self,
        actor: Actor,
        runtime_id: UUID,
        presence: timedelta,
        unusable_reason: str,
        metadata: Mapping[str, Any] | None,
    ) -> Runtime:
        """Note a sign of life; work that waited for it is looked at again.

        Raises:
            NotFound: there is none that the caller may report.
            FailedPrecondition: it is heartbeat's own.
        """
        async with self._db.transaction() as tx:
            before = await self._read(tx, actor, runtime_id)
            if before.kind is RuntimeKind.LOCAL:
                raise _own(before.name)
            kept = None if metadata is None else dict(metadata)
            if not await tx.execute(
                Q["report_runtime"], runtime_id, presence, unusable_reason, kept
            ):
                raise _gone(runtime_id)
            after = to_runtime((await tx.fetch(Q["find_runtimes"], [runtime_id]))[0])
        if after.online and not before.online:
            self._notifier.notify(channels.QUEUE)
        return after

    async def page(self, actor: Actor, workspace_id: UUID, page: Page) -> Listed[Runtime]:
        """List a workspace's runtimes by name. Raises NotFound for a stranger."""
        actor.require_member(workspace_id)
        after = None if page.after is None else str(page.after[0])
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["list_runtimes"], workspace_id, after, page.limit)
            await require_known(tx, workspace_id, rows)
        return to_page([to_runtime(row) for row in rows], page)

    async def delete(self, actor: Actor, runtime_id: UUID) -> list[UUID]:
        """Remove a runtime; gives the agents that have none now.

        Raises:
            NotFound: there is none that the caller may see. PermissionDenied: not an administrator.
            FailedPrecondition: it is heartbeat's own.
        """
        for _ in range(_LOOKS):
            async with self._db.session() as tx:
                runtime = await self._read(tx, actor, runtime_id)
                bound = {row["agent_id"] for row in await tx.fetch(Q["agents_at"], runtime_id)}
            actor.require_member(runtime.workspace_id, Role.ADMIN)
            if runtime.kind is RuntimeKind.LOCAL:
                raise _own(runtime.name)

            async def delete(
                tx: Tx, runtime: Runtime = runtime, bound: set[UUID] = bound
            ) -> list[UUID] | None:
                return await self._delete(tx, runtime, bound)

            unbound = await retrying_transaction(self._db, delete)
            if unbound is not None:
                self._notifier.notify(channels.FEED)
                return unbound
        raise Aborted("REQUEST_CONFLICT", "agents are being bound to it; send it again")

    async def _delete(self, tx: Tx, runtime: Runtime, bound: set[UUID]) -> list[UUID] | None:
        """Unbind and remove; None when an agent was bound to it that is not locked."""
        await LockOrder().take(tx, Level.AGENT, Q["lock_agents"], bound)
        if await tx.fetchval(Q["lock_runtime"], runtime.runtime_id) is None:
            raise _gone(runtime.runtime_id)
        now = sorted(row["agent_id"] for row in await tx.fetch(Q["agents_at"], runtime.runtime_id))
        if not bound.issuperset(now):
            return None
        await tx.execute(Q["unbind_agents"], now)
        await tx.execute(Q["delete_runtime"], runtime.runtime_id)
        await feed.append(
            tx, [events.runtime_deleted(runtime.runtime_id, runtime.workspace_id, now)]
        )
        return now

    async def _read(self, tx: Tx, actor: Actor, runtime_id: UUID) -> Runtime:
        """Read a runtime; one that calls for itself sees itself alone."""
        rows = await tx.fetch(Q["find_runtimes"], [runtime_id])
        found = to_runtime(rows[0]) if rows else None
        if actor.kind is CallerKind.RUNTIME and actor.subject != str(runtime_id):
            found = None
        return require_visible(actor, found, "runtime", runtime_id)


def _gone(runtime_id: UUID) -> NotFound:
    return NotFound("NOT_FOUND", f"runtime {runtime_id} does not exist, or is not yours")


def _own(name: str) -> FailedPrecondition:
    return FailedPrecondition(
        "WRONG_STATE", f"runtime {name} is heartbeat's own, and kept by it", {"name": name}
    )
