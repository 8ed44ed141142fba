"""Running a rule on request: one run per request, attributed to whoever asked, with its outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import asyncpg
import grpc
import pytest
from tests.integration.autopilot.conftest import (
    ADMIN,
    CREATOR,
    MEMBER,
    STRANGER,
    Service,
    make_autopilot,
    make_schedule,
    refused,
    run_now,
)
from tests.integration.autopilot.peers import World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.autopilot.v1 import run_pb2
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import issue_pb2, wakeup_pb2
from reveille_autopilot import wiring
from reveille_autopilot.usecases.signals import RunSignals


async def test_a_manual_run_wakes_the_agent_and_ends_with_its_wakeup(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id, payload=b'{"why":"now"}')

    assert run.state == run_pb2.RUN_STATE_RUNNING
    made = world.only()
    assert run.wakeup_id == made.wakeup_id
    assert made.wakeup is not None
    assert made.wakeup.source == wakeup_pb2.WAKEUP_SOURCE_ON_DEMAND
    assert made.wakeup.reason == "autopilot_run"
    assert made.wakeup.prompt == "Look at what came in."
    assert made.wakeup.payload.body == b'{"why":"now"}'
    assert made.wakeup.origin.occurrence_key == run.occurrence_key
    assert made.wakeup.origin.autopilot_run_id == run.run_id
    assert made.wakeup.origin.originator_user_id == CREATOR
    assert (run.originator_user_id, run.accountable_user_id) == (CREATOR, CREATOR)
    assert run.attribution_source == run_pb2.ATTRIBUTION_SOURCE_DIRECT_HUMAN
    assert run.rule_version_id == autopilot.rule_version_id

    await world.emit(
        world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED, result={"summary": "done"})
    )
    ended = await service.ended(run.run_id)
    assert ended.state == run_pb2.RUN_STATE_COMPLETED
    assert json.loads(ended.result) == {"summary": "done"}


async def test_a_create_issue_run_ends_with_its_issue_and_keeps_the_agents_answer(
    service: Service, world: World, workspace_id: UUID
) -> None:
    autopilot = await make_autopilot(service, world, workspace_id, issue=True)
    run = await run_now(service, autopilot.autopilot_id)

    assert run.state == run_pb2.RUN_STATE_ISSUE_CREATED
    made = world.only()
    assert (run.issue_id, run.wakeup_id) == (made.issue_id, made.wakeup_id)
    assert made.issue is not None
    assert made.issue.title == run.title
    assert run.title.startswith("Triage of 20")

    # The agent's result file moves the issue before its wakeup is settled.
    await world.emit(world.moved(made, issue_pb2.ISSUE_STATUS_IN_REVIEW))
    await world.emit(world.moved(made, issue_pb2.ISSUE_STATUS_DONE))
    assert (await service.ended(run.run_id)).state == run_pb2.RUN_STATE_COMPLETED
    await world.emit(
        world.settled(made, wakeup_pb2.WAKEUP_STATE_COMPLETED, result={"summary": "closed"}),
        world.moved(made, issue_pb2.ISSUE_STATUS_TODO),
    )
    other = await run_now(service, autopilot.autopilot_id)
    later = world.made[other.occurrence_key]
    await world.emit(world.moved(later, issue_pb2.ISSUE_STATUS_CANCELLED))
    cancelled = await service.ended(other.run_id)
    assert cancelled.reason == reason_pb2.REASON_ISSUE_CANCELLED

    # The events before it in the feed have been handled too: the reopening changed nothing.
    run = await service.run_of(run.run_id)
    assert run.state == run_pb2.RUN_STATE_COMPLETED
    assert json.loads(run.result) == {"summary": "closed"}


async def test_fifty_requests_with_one_id_make_one_run(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    runs = await asyncio.gather(
        *(run_now(service, autopilot.autopilot_id, request_id="same") for _ in range(50))
    )

    assert len({run.run_id for run in runs}) == 1
    assert await rows.fetchval("SELECT count(*) FROM runs") == 1
    assert len(world.made) == 1


async def test_a_request_id_belongs_to_one_content_and_one_caller(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    first = await run_now(service, autopilot.autopilot_id, request_id="r", payload=b"1")
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED"):
        await run_now(service, autopilot.autopilot_id, request_id="r", payload=b"2")
    other = await run_now(service, autopilot.autopilot_id, ADMIN, request_id="r", payload=b"1")
    assert other.run_id != first.run_id
    assert other.originator_user_id == ADMIN


async def test_a_request_is_answered_with_its_run_even_after_a_pause(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    first = await run_now(service, autopilot.autopilot_id, request_id="r")
    await service.as_user(CREATOR).PauseAutopilot(
        pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id)
    )

    again = await run_now(service, autopilot.autopilot_id, request_id="r")
    assert again.run_id == first.run_id
    refusal = await run_now(service, autopilot.autopilot_id, request_id="another")
    assert refusal.state == run_pb2.RUN_STATE_SKIPPED
    assert refusal.reason == reason_pb2.REASON_AUTOPILOT_PAUSED
    assert refusal.HasField("finish_time")


async def test_a_refusal_by_heartbeat_is_a_skipped_run_with_its_reason(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    world.refusal = reason_pb2.REASON_INVOCATION_NOT_ALLOWED
    run = await run_now(service, autopilot.autopilot_id)

    assert run.state == run_pb2.RUN_STATE_SKIPPED
    assert run.reason == reason_pb2.REASON_INVOCATION_NOT_ALLOWED
    assert not world.made
    # The first was asked when the rule was published.
    question = world.questions[-1]
    assert (question.principal_user_id, question.principal_is_member) == (CREATOR, True)
    assert question.runtime_must_be_online


async def test_a_wakeup_refused_at_enqueue_ends_the_run_as_skipped(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    world.enqueue_state = wakeup_pb2.WAKEUP_STATE_SKIPPED
    world.enqueue_reason = reason_pb2.REASON_AGENT_NOT_INVOKABLE
    run = await run_now(service, autopilot.autopilot_id)
    assert run.state == run_pb2.RUN_STATE_SKIPPED
    assert run.reason == reason_pb2.REASON_AGENT_NOT_INVOKABLE
    assert run.wakeup_id == world.only().wakeup_id


async def test_an_undecidable_request_is_unavailable_and_leaves_nothing(
    service: Service,
    world: World,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
) -> None:
    world.away = {"CheckInvocable"}
    async with refused(grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE"):
        await run_now(service, autopilot.autopilot_id)
    assert await rows.fetchval("SELECT count(*) FROM runs") == 0


async def test_a_service_runs_a_rule_as_api_and_its_publisher_answers(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    response = await service.as_service().RunAutopilot(
        pb.RunAutopilotRequest(autopilot_id=autopilot.autopilot_id, request_id="r")
    )
    run = response.run
    assert run.source == run_pb2.RUN_SOURCE_API
    assert run.occurrence_key == f"api:{autopilot.autopilot_id}:service:scheduler:r"
    assert (run.originator_user_id, run.accountable_user_id) == ("", CREATOR)
    assert run.attribution_source == run_pb2.ATTRIBUTION_SOURCE_RULE_OWNER


async def test_who_may_run_a_rule(service: Service, autopilot: rule_pb.Autopilot) -> None:
    async with refused(grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_WEAK"):
        await run_now(service, autopilot.autopilot_id, MEMBER)
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await run_now(service, autopilot.autopilot_id, STRANGER)
    operator = await service.as_user("op", operator=True).RunAutopilot(
        pb.RunAutopilotRequest(autopilot_id=autopilot.autopilot_id)
    )
    assert operator.run.state == run_pb2.RUN_STATE_RUNNING
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await service.as_user(STRANGER).GetRun(pb.GetRunRequest(run_id=operator.run.run_id))


async def test_a_run_as_a_trigger_needs_a_trigger_of_that_rule(
    service: Service, world: World, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    trigger = await make_schedule(service, autopilot.autopilot_id)
    other = await make_autopilot(service, world, workspace_id)

    run = await run_now(service, autopilot.autopilot_id, trigger_id=trigger.trigger_id)
    assert run.trigger_id == trigger.trigger_id
    async with refused(grpc.StatusCode.NOT_FOUND, "NOT_FOUND"):
        await run_now(service, other.autopilot_id, trigger_id=trigger.trigger_id)
    await service.as_user(CREATOR).DeleteTrigger(
        pb.DeleteTriggerRequest(trigger_id=trigger.trigger_id)
    )
    gone = await run_now(service, autopilot.autopilot_id, trigger_id=trigger.trigger_id)
    assert gone.state == run_pb2.RUN_STATE_SKIPPED
    assert gone.reason == reason_pb2.REASON_TRIGGER_NOT_FOUND


async def test_a_run_can_be_waited_for_and_the_wait_ends_in_time(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    request = pb.WaitRunRequest(run_id=run.run_id)
    request.timeout.FromMilliseconds(50)
    still = await service.as_user(CREATOR).WaitRun(request)
    assert still.run.state == run_pb2.RUN_STATE_RUNNING

    waiting = asyncio.create_task(service.ended(run.run_id))
    await world.emit(
        world.settled(
            world.only(),
            wakeup_pb2.WAKEUP_STATE_FAILED,
            reason="adapter_failed",
            message="it exited with 3",
        )
    )
    ended = await waiting
    assert ended.state == run_pb2.RUN_STATE_FAILED
    assert ended.reason == reason_pb2.REASON_ADAPTER_FAILED
    assert ended.message == "it exited with 3"


class WatchedSignals(RunSignals):
    """Tells when somebody has begun to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_for = asyncio.Event()

    @contextmanager
    def listening(self, run_id: UUID) -> Iterator[asyncio.Event]:
        with super().listening(run_id) as news:
            self.waited_for.set()
            yield news


async def test_whoever_waits_is_answered_when_the_service_stops(
    service: Service,
    autopilot: rule_pb.Autopilot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    signals = WatchedSignals()
    monkeypatch.setattr(wiring, "RunSignals", lambda: signals)
    other = await service.stage.start()
    request = pb.WaitRunRequest(run_id=run.run_id)
    request.timeout.FromSeconds(60)
    call = asyncio.ensure_future(_answer(other.as_user(CREATOR).WaitRun(request)))
    await signals.waited_for.wait()
    async with asyncio.timeout(5):
        await other.app.stop()
        answered = await call
    assert answered.run.state == run_pb2.RUN_STATE_RUNNING


async def _answer(call: Any) -> pb.WaitRunResponse:
    answer: pb.WaitRunResponse = await call
    return answer


async def test_runs_are_listed_newest_first_by_page_and_filter(
    service: Service, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    runs = [await run_now(service, autopilot.autopilot_id) for _ in range(3)]
    stub = service.as_user(MEMBER)
    first = await stub.ListRuns(pb.ListRunsRequest(workspace_id=str(workspace_id), page_size=2))
    assert [run.run_id for run in first.runs] == [runs[2].run_id, runs[1].run_id]
    assert not first.runs[0].prompt
    rest = await stub.ListRuns(
        pb.ListRunsRequest(
            workspace_id=str(workspace_id), page_size=2, page_token=first.next_page_token
        )
    )
    assert [run.run_id for run in rest.runs] == [runs[0].run_id]
    assert not rest.next_page_token
    none = await stub.ListRuns(
        pb.ListRunsRequest(workspace_id=str(workspace_id), states=[run_pb2.RUN_STATE_COMPLETED])
    )
    assert not none.runs
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN"):
        await stub.ListRuns(
            pb.ListRunsRequest(
                workspace_id=str(workspace_id),
                autopilot_id=autopilot.autopilot_id,
                page_token=first.next_page_token,
            )
        )
