"""A job owner for benches and crash tests: commits one row for each plan, then answers.

Run as `python bench/handler.py ADDRESS DSN`, the password of the DSN in PGPASSWORD.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import UTC
from pathlib import Path
from typing import Any

import asyncpg
import grpc

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import (
    JobHandlerServiceServicer,
    add_JobHandlerServiceServicer_to_server,
)
from reveille_runtime.queries import parse_queries

_FILE = Path(__file__).with_name("handler.sql")
QUERIES = parse_queries(_FILE.read_text(encoding="utf-8"), _FILE.name)


class Handler(JobHandlerServiceServicer):
    """Commits a row for each plan of a call; the key makes a repeated plan one effect."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    async def RunPlans(self, request: pb.RunPlansRequest, context: Any) -> pb.RunPlansResponse:
        """Commit, then answer."""
        await self._pool.execute(
            QUERIES["insert_effects"].sql,
            [plan.scope_id for plan in request.plans],
            [plan.plan_time.ToDatetime(tzinfo=UTC) for plan in request.plans],
        )
        return pb.RunPlansResponse(
            results=[
                pb.PlanResult(
                    execution_id=plan.execution_id,
                    outcome=pb.PLAN_OUTCOME_SUCCESS,
                    result=b'{"handled": true}',
                )
                for plan in request.plans
            ]
        )

    async def PlanScopes(
        self, request: pb.PlanScopesRequest, context: Any
    ) -> pb.PlanScopesResponse:
        """Name nothing."""
        return pb.PlanScopesResponse()


async def main(address: str, dsn: str) -> None:
    """Serve until told to stop."""
    pool = await asyncpg.create_pool(dsn, min_size=1, max_size=4)
    # Our clients ask now and then whether the other side still lives.
    server = grpc.aio.server(options=[("grpc.http2.min_ping_interval_without_data_ms", 5_000)])
    add_JobHandlerServiceServicer_to_server(Handler(pool), server)
    server.add_insecure_port(address)
    await server.start()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await server.stop(0.5)
    await pool.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
