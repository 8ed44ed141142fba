"""What agents do is told when their runs have ended, in nobody's way."""

from __future__ import annotations

from tests.integration.heartbeat.desk import Desk

from reveille_heartbeat.usecases.agents.agent_statuses import AgentStatuses
from reveille_runtime.hints import Notifier
from reveille_testkit.waiting import eventually


async def test_who_works_on_is_neither_waited_for_nor_told_of(desk: Desk) -> None:
    resting, busy = await desk.agent("ann"), await desk.agent("bob")
    woken = await desk.one(desk.wish(busy))
    await desk.begin(woken.wakeup_id)
    statuses = AgentStatuses(desk.db, Notifier(desk.db, enabled=False))

    async def told() -> list[str]:
        rows = await desk.rows.fetch("SELECT subject_id FROM feed WHERE type = 'agent.status'")
        return [row["subject_id"] for row in rows]

    holder = await desk.database.connect("reveille_heartbeat_app")
    await holder.execute("SET idle_in_transaction_session_timeout = 0")
    async with holder.transaction():
        # As a claim holds it, or an enqueue.
        await holder.execute("SELECT FROM agents WHERE agent_id = $1 FOR UPDATE", busy)
        statuses.ended([resting, busy])
        assert await eventually(told, "an agent is told of", timeout=20) == [str(resting)]
    await statuses.close()
    assert await told() == [str(resting)]
