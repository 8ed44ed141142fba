"""Telling the others what this service wants of them: scopes, endpoints, workspaces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from reveille.heartbeat.v1 import workspace_replica_service_pb2 as replica_pb
from reveille.scheduler.v1 import job_pb2 as job_pb
from reveille.scheduler.v1 import scheduler_service_pb2 as scheduler_pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_autopilot.store import triggers, workspaces
from reveille_autopilot.store.triggers import EndpointState, ScopeState
from reveille_autopilot.store.workspaces import WorkspaceState
from reveille_autopilot.usecases.hooks import endpoint_options
from reveille_autopilot.usecases.jobs import ONCE_LATENESS
from reveille_autopilot.usecases.peers import Heartbeat, is_refusal
from reveille_autopilot.usecases.plans import JOB, SCOPE_KIND
from reveille_jobs.registering import Jobs
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx
from reveille_runtime.desired import DesiredRow, Pushed, Relay
from reveille_runtime.errors import DomainError, NotFound
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.validation import to_duration, to_timestamp

if TYPE_CHECKING:
    from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub
    from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceAsyncStub

T = TypeVar("T")
R = TypeVar("R", bound=DesiredRow)
# A refusal names a few fields; a longer text is cut.
_LONGEST_CAUSE = 1_000


class Relays:
    """One relay per receiver; `push_now` of each is what a caller waits for."""

    def __init__(
        self,
        db: Database,
        scheduler: SchedulerServiceAsyncStub,
        endpoints: EndpointServiceAsyncStub,
        heartbeat: Heartbeat,
        jobs: Jobs,
    ) -> None:
        self._db = db
        self._scheduler = scheduler
        self._endpoints = endpoints
        self._heartbeat = heartbeat
        self._jobs = jobs
        self.scopes: Relay[ScopeState] = Relay(
            "autopilot.scopes",
            pending=lambda after, limit: self._read(triggers.unsynced_scopes, after, limit),
            load=lambda ids: self._read(triggers.unsynced_scopes_of, ids),
            push=self._push_scopes,
            mark=lambda ids, revisions: self._read(triggers.mark_synced, ids, revisions),
            note=lambda *refused: self._read(triggers.note_refused, *refused),
        )
        self.endpoints: Relay[EndpointState] = Relay(
            "autopilot.endpoints",
            pending=lambda after, limit: self._read(triggers.unsynced_endpoints, after, limit),
            load=lambda ids: self._read(triggers.unsynced_endpoints_of, ids),
            push=self._push_endpoints,
            mark=lambda ids, revisions: self._read(triggers.mark_synced, ids, revisions),
            note=lambda *refused: self._read(triggers.note_refused, *refused),
        )
        self.workspaces: Relay[WorkspaceState] = Relay(
            "autopilot.workspaces",
            pending=lambda after, limit: self._read(workspaces.unsynced, after, limit),
            load=lambda ids: self._read(workspaces.unsynced_of, ids),
            push=self._push_workspaces,
            mark=lambda ids, revisions: self._read(workspaces.mark_synced, ids, revisions),
            note=lambda *refused: self._read(workspaces.note_refused, *refused),
        )

    async def _read(self, work: Callable[..., Awaitable[T]], *args: object) -> T:
        async with self._db.session() as tx:
            return await _with(tx, work, *args)

    async def _push_scopes(self, rows: Sequence[ScopeState]) -> Pushed:
        """Send scopes and deletions; scopes of a job that is not known yet need it first."""
        await self._jobs.registered()
        wanted = [row for row in rows if not row.deleted]
        deleted = [row for row in rows if row.deleted]
        taken: list[UUID] = []
        refused: dict[UUID, str] = {}
        if wanted:
            taken += await _halving(wanted, self._upsert_scopes, refused)
        if deleted:
            taken += await _halving(deleted, self._delete_scopes, refused)
        crash_point("autopilot.relay.after_push")
        return Pushed(taken, refused)

    async def _upsert_scopes(self, rows: Sequence[ScopeState]) -> None:
        scopes = [
            job_pb.Scope(
                job_name=JOB,
                kind=SCOPE_KIND,
                id=str(row.id),
                cron=row.cron,
                time_zone=row.time_zone,
                run_at=to_timestamp(row.run_at),
                max_lateness=None if row.run_at is None else to_duration(ONCE_LATENESS),
                enabled=row.enabled,
                revision=row.revision,
                effective_from=to_timestamp(row.effective_from),
            )
            for row in rows
        ]
        request = scheduler_pb.UpsertScopesRequest(scopes=scopes)
        try:
            with as_domain_errors():
                await self._scheduler.UpsertScopes(request)
        except NotFound:
            # Its database may be one from before the job was known.
            await self._jobs.register()
            with as_domain_errors():
                await self._scheduler.UpsertScopes(request)

    async def _delete_scopes(self, rows: Sequence[ScopeState]) -> None:
        keys = [
            scheduler_pb.ScopeKey(
                job_name=JOB, kind=SCOPE_KIND, id=str(row.id), revision=row.revision
            )
            for row in rows
        ]
        with as_domain_errors():
            await self._scheduler.DeleteScopes(scheduler_pb.DeleteScopesRequest(scopes=keys))

    async def _push_endpoints(self, rows: Sequence[EndpointState]) -> Pushed:
        return await _one_by_one(rows, self._push_endpoint)

    async def _push_endpoint(self, row: EndpointState) -> None:
        with as_domain_errors():
            if row.deleted:
                await self._endpoints.DeleteEndpoint(
                    endpoint_pb.DeleteEndpointRequest(
                        endpoint_id=str(row.id), revision=row.revision
                    )
                )
                return
            await self._endpoints.PutEndpoint(
                endpoint_pb.PutEndpointRequest(
                    endpoint=endpoint_pb.Endpoint(
                        endpoint_id=str(row.id),
                        workspace_id=str(row.workspace_id),
                        token_sha256=row.token_sha256,
                        previous_token_sha256=row.previous_token_sha256 or b"",
                        previous_token_expire_time=to_timestamp(row.previous_token_expires_at),
                        provider=row.provider,
                        max_body_bytes=row.max_body_bytes,
                        revision=row.revision,
                        options=endpoint_options(row.options),
                    )
                )
            )

    async def _push_workspaces(self, rows: Sequence[WorkspaceState]) -> Pushed:
        return await _one_by_one(rows, self._push_workspace)

    async def _push_workspace(self, row: WorkspaceState) -> None:
        with as_domain_errors():
            await self._heartbeat.workspaces.PutWorkspace(
                replica_pb.PutWorkspaceRequest(
                    workspace_id=str(row.id),
                    issue_prefix=row.issue_prefix,
                    default_responsible_user_id=row.default_responsible_user_id,
                    revision=row.revision,
                    status=replica_pb.WorkspaceStatus.Value(f"WORKSPACE_STATUS_{row.status.name}"),
                )
            )


async def _with(tx: Tx, work: Callable[..., Awaitable[T]], *args: object) -> T:
    return await work(tx, *args)


async def _halving(
    rows: Sequence[R], push: Callable[[Sequence[R]], Awaitable[None]], refused: dict[UUID, str]
) -> list[UUID]:
    """Send a batch; one that is refused is halved, so that a bad row holds nobody else up."""
    try:
        await push(rows)
    except DomainError as error:
        if not is_refusal(error):
            raise
        if len(rows) == 1:
            refused[rows[0].id] = _cause(error)
            return []
        middle = len(rows) // 2
        first = await _halving(rows[:middle], push, refused)
        return first + await _halving(rows[middle:], push, refused)
    return [row.id for row in rows]


async def _one_by_one(rows: Sequence[R], push: Callable[[R], Awaitable[None]]) -> Pushed:
    """Send rows for which there is no batch; what became of them before an outage counts."""
    taken: list[UUID] = []
    refused: dict[UUID, str] = {}
    for row in rows:
        try:
            await push(row)
        except DomainError as error:
            if is_refusal(error):
                refused[row.id] = _cause(error)
                continue
            if taken or refused:
                break
            raise
        taken.append(row.id)
    crash_point("autopilot.relay.after_push")
    return Pushed(taken, refused)


def _cause(error: DomainError) -> str:
    """Say in the receiver's words why it refuses a row."""
    return error.message[:_LONGEST_CAUSE]
