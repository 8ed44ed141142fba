"""Forgetting: what ended long ago goes, what is on its way or came again lately stays."""

from __future__ import annotations

import json
from datetime import timedelta

from tests.integration.webhook.conftest import Gateway, Stage
from tests.integration.webhook.peer import FakeAutopilot

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import JobHandlerServiceStub
from reveille_webhook.usecases.retention import JOB, Retention

BODY = b'{"action":"opened"}'
DAYS = 86_400


async def test_what_ended_long_ago_goes_and_the_rest_stays(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    for delivery in ("old", "again", "queued"):
        await gateway.post(hook, BODY, delivery=delivery)
        if delivery != "queued":
            await gateway.work()
    await gateway.post(hook, BODY, secret=None)
    gateway.database.move_clock(60 * DAYS)
    await gateway.post(hook, BODY, delivery="again")
    gateway.database.move_clock(31 * DAYS)

    said = await Retention(gateway.database, timedelta(days=90), stretch=1)()
    twice = await Retention(gateway.database, timedelta(days=90))()

    assert (said["deliveries_removed"], said["finished"]) == (2, True)
    assert twice["deliveries_removed"] == 0
    assert [row["dedupe_key"] for row in await gateway.rows()] == ["again", "queued"]


async def test_a_run_that_is_out_of_time_goes_on_with_the_next(gateway: Gateway) -> None:
    hook = await gateway.hook()
    for _ in range(3):
        await gateway.post(hook, BODY, secret=None)
    gateway.database.move_clock(91 * DAYS)
    clock = iter([0.0, 0.0, 1e9])
    retention = Retention(
        gateway.database, timedelta(days=90), stretch=1, monotonic=lambda: next(clock)
    )

    said = await retention()

    assert (said["deliveries_removed"], said["finished"]) == (1, False)


async def test_the_scheduler_hands_the_job_over(gateway: Gateway, stage: Stage) -> None:
    stub = JobHandlerServiceStub(gateway.channel(stage.keys.service("scheduler")))

    answer = await stub.RunPlans(
        pb.RunPlansRequest(
            plans=[
                pb.Plan(execution_id="1", job_name=JOB),
                pb.Plan(execution_id="2", job_name="another"),
            ]
        )
    )

    assert [each.outcome for each in answer.results] == [
        pb.PLAN_OUTCOME_SUCCESS,
        pb.PLAN_OUTCOME_FAILED,
    ]
    assert json.loads(answer.results[0].result)["finished"]
