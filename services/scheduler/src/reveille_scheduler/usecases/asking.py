"""What operators ask of the ledger: repeatable by request_id, one transaction with the answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from reveille.scheduler.v1 import execution_pb2
from reveille.scheduler.v1 import scheduler_service_pb2 as pb
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.requests import once
from reveille_scheduler.domain.occurrence import Execution
from reveille_scheduler.domain.scope import ScopeKey
from reveille_scheduler.usecases.backfill import BackfillScope
from reveille_scheduler.usecases.executions import Executions


class Asking:
    """Retries and backfills on request."""

    def __init__(self, database: Database, executions: Executions, backfill: BackfillScope) -> None:
        self._database = database
        self._executions = executions
        self._backfill = backfill

    async def retry(
        self,
        principal: str,
        request: pb.RetryExecutionRequest,
        execution_id: UUID,
        show: Callable[[Execution], execution_pb2.Execution],
    ) -> pb.RetryExecutionResponse:
        """Give a final failure new attempts; raises what `Executions.retry` raises."""

        async def work(tx: Tx) -> pb.RetryExecutionResponse:
            async def make() -> pb.RetryExecutionResponse:
                found = await self._executions.retry(tx, execution_id)
                return pb.RetryExecutionResponse(execution=show(found))

            return await once(
                tx,
                principal=principal,
                method="RetryExecution",
                request=request,
                response=pb.RetryExecutionResponse,
                make=make,
            )

        return await retrying_transaction(self._database, work)

    async def backfill(
        self,
        principal: str,
        request: pb.BackfillScopeRequest,
        key: ScopeKey,
        start: datetime,
        end: datetime,
    ) -> pb.BackfillScopeResponse:
        """Promise what a scope missed; raises what `BackfillScope` raises."""

        async def work(tx: Tx) -> pb.BackfillScopeResponse:
            async def make() -> pb.BackfillScopeResponse:
                found = await self._backfill(tx, key, start, end)
                return pb.BackfillScopeResponse(
                    new=found.new,
                    done=found.done,
                    refused=found.refused,
                    execution_ids=[str(each) for each in found.executions],
                )

            return await once(
                tx,
                principal=principal,
                method="BackfillScope",
                request=request,
                response=pb.BackfillScopeResponse,
                make=make,
            )

        return await retrying_transaction(self._database, work)
