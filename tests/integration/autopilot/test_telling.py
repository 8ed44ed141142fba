"""What the service tells of its runs: spans under stored ids, and explanations in plain words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from opentelemetry.sdk.trace import ReadableSpan
from tests.integration.autopilot.conftest import (
    CREATOR,
    STRANGER,
    Service,
    admit,
    facts,
    hand_over,
    make_autopilot,
    make_schedule,
    make_webhook,
    run_now,
    withdraw,
)
from tests.integration.autopilot.peers import World

from reveille.autopilot.v1 import autopilot_pb2 as rule_pb
from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.explain.v1 import explain_service_pb2 as explain_pb
from reveille.heartbeat.v1 import wakeup_pb2
from reveille_autopilot.domain.deadlines import OTHERS, SCHEDULE
from reveille_autopilot.store import limits, upkeep, workspaces
from reveille_autopilot.store.runs import Q
from reveille_runtime.carrier import SpanSeed
from reveille_testkit.database import TestDatabase
from reveille_testkit.waiting import eventually


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def ids_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


async def test_a_run_is_one_span_of_its_triggers_trace_and_heartbeat_goes_on_under_it(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    request, worker = SpanSeed.root(), SpanSeed.root()
    delivery = facts(hook.trigger, trace_carrier=request.carrier())
    (admitted,) = await admit(service, delivery)
    run = await service.run_of(admitted.run_id)
    assert run.trace_id == f"{request.trace_id:032x}"
    await hand_over(service, delivery, admitted.run_id)

    made = world.only()
    assert made.wakeup is not None
    seed = SpanSeed.from_carrier(made.wakeup.origin.trace_carrier)
    assert seed is not None
    assert seed.trace_id == request.trace_id != worker.trace_id
    (dispatch,) = service.spans.named("dispatch autopilot.run")
    assert ids_of(dispatch)[0] == request.trace_id

    await world.emit(
        world.settled(
            made, wakeup_pb2.WAKEUP_STATE_FAILED, reason="adapter_failed", message="exit 3"
        )
    )
    await service.ended(admitted.run_id)
    span = await service.spans.wait("autopilot.run")
    assert ids_of(span) == (seed.trace_id, seed.span_id)
    assert parent_of(span) == request.span_id
    attributes: dict[str, Any] = dict(span.attributes or {})
    assert attributes["reveille.run.outcome"] == "failed"
    assert attributes["reveille.run.reason"] == "adapter_failed"
    assert attributes["reveille.delivery.id"] == delivery.delivery_id
    assert not span.status.is_ok
    assert span.status.description == "exit 3"


async def test_a_manual_run_belongs_to_the_callers_trace(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    call = await service.spans.wait("RunAutopilot")
    assert run.trace_id == f"{ids_of(call)[0]:032x}"
    await world.emit(world.settled(world.only(), wakeup_pb2.WAKEUP_STATE_COMPLETED))
    await service.ended(run.run_id)
    span = await service.spans.wait("autopilot.run")
    assert parent_of(span) == ids_of(call)[1]


async def test_no_span_and_no_row_shows_an_address(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    token = hook.hook_path.removeprefix("/hooks/")
    for span in service.spans.ended:
        assert token not in repr((span.name, dict(span.attributes or {}), span.events))


async def explain(
    service: Service, some_id: str, user_id: str = CREATOR
) -> list[explain_pb.Finding]:
    response = await service.explainer(user_id).Explain(explain_pb.ExplainRequest(id=some_id))
    return list(response.findings)


async def test_a_run_is_explained_by_every_id_that_leads_to_it(
    service: Service, world: World, workspace_id: UUID
) -> None:
    autopilot = await make_autopilot(service, world, workspace_id, issue=True)
    hook = await make_webhook(service, autopilot.autopilot_id)
    delivery = facts(hook.trigger)
    (admitted,) = await admit(service, delivery)
    (finding,) = await explain(service, admitted.run_id)
    assert (finding.subject, finding.state) == ("run", "pending")
    assert "waits for the gateway" in finding.text
    await hand_over(service, delivery, admitted.run_id)

    made = world.only()
    for some_id in (
        admitted.run_id,
        delivery.delivery_id,
        made.wakeup_id,
        made.issue_id,
        f"webhook:{delivery.delivery_id}",
    ):
        (finding,) = await explain(service, some_id)
        assert finding.subject_id == admitted.run_id
        assert finding.state == "issue_created"
        assert made.issue_id in finding.text
        assert finding.command == f"reveille runs cancel {admitted.run_id}"
        assert {
            f"webhook:{delivery.delivery_id}",
            delivery.delivery_id,
            made.wakeup_id,
            made.issue_id,
            hook.trigger.trigger_id,
        } <= set(finding.related)
        assert ("autopilot.runs", admitted.run_id) in {(row.table, row.id) for row in finding.rows}
        assert "without closing" not in finding.text

    completed = wakeup_pb2.WAKEUP_STATE_COMPLETED
    await world.emit(world.settled(made, completed, result={"summary": "looked at it"}))
    await eventually(
        lambda: explain(service, admitted.run_id),
        "the agent's end is known",
        until=lambda told: "The agent ended without closing the issue" in told[0].text,
    )
    (finding,) = await explain(service, admitted.run_id)
    assert f"reveille issues move {made.issue_id} done" in finding.text
    assert finding.command == f"reveille runs cancel {admitted.run_id}"


async def test_a_delivery_leads_to_the_run_that_handed_it_back_too(
    service: Service, autopilot: rule_pb.Autopilot
) -> None:
    hook = await make_webhook(service, autopilot.autopilot_id)
    delivery = facts(hook.trigger)
    (purged,) = await admit(service, delivery)
    await withdraw(service, delivery.delivery_id)
    (finding,) = await explain(service, delivery.delivery_id)
    assert (finding.subject_id, finding.reason) == (purged.run_id, "purged")

    (clean,) = await admit(service, delivery)
    told = await explain(service, delivery.delivery_id)
    assert [each.subject_id for each in told] == [clean.run_id, purged.run_id]


async def test_a_trigger_is_explained_with_its_next_fire_and_what_keeps_it_from_firing(
    service: Service, world: World, autopilot: rule_pb.Autopilot
) -> None:
    await service.tick("job")
    trigger = await make_schedule(service, autopilot.autopilot_id)
    (waiting,) = await explain(service, trigger.trigger_id)
    assert waiting.state == "waiting"
    assert "fires next at" in waiting.text

    world.away = {"scheduler"}
    lonely = await make_schedule(service, autopilot.autopilot_id)
    (unsynced,) = await explain(service, lonely.trigger_id)
    assert unsynced.state == "waiting"
    assert "The scheduler has not confirmed" in unsynced.text
    stub = service.as_user(CREATOR)
    await stub.PauseAutopilot(pb.PauseAutopilotRequest(autopilot_id=autopilot.autopilot_id))
    (paused,) = await explain(service, trigger.trigger_id)
    assert (paused.state, paused.reason) == ("paused", "autopilot_paused")
    assert paused.command == f"reveille autopilots resume {autopilot.autopilot_id}"
    await stub.DeleteTrigger(pb.DeleteTriggerRequest(trigger_id=trigger.trigger_id))
    newest = (await explain(service, trigger.trigger_id))[0]
    assert "deleted" in newest.text


async def test_a_rule_and_a_workspace_are_explained(
    service: Service, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    findings = await explain(service, autopilot.autopilot_id)
    assert {finding.subject for finding in findings} == {"run", "autopilot"}
    rule = next(finding for finding in findings if finding.subject == "autopilot")
    assert f"published by {CREATOR}" in rule.text
    assert run.run_id in {finding.subject_id for finding in findings}
    (workspace,) = await explain(service, str(workspace_id))
    assert (workspace.subject, workspace.state) == ("workspace", "active")


async def test_a_workspace_that_heartbeat_refuses_says_so(
    service: Service, world: World, workspace_id: UUID
) -> None:
    world.away = {"heartbeat"}
    database = service.app.database
    assert database is not None
    async with database.session() as tx:
        await tx.raw.execute("UPDATE workspaces SET revision = revision + 1")
        (row,) = await workspaces.unsynced_of(tx, [workspace_id])
        await workspaces.note_refused(tx, [workspace_id], [row.revision], ["the prefix is taken"])

    (refused,) = await explain(service, str(workspace_id))
    assert refused.state == "unsynced"
    assert "heartbeat refuses it: the prefix is taken" in refused.text


async def test_what_is_not_the_callers_yields_nothing(
    service: Service, workspace_id: UUID, autopilot: rule_pb.Autopilot
) -> None:
    run = await run_now(service, autopilot.autopilot_id)
    trigger = await make_schedule(service, autopilot.autopilot_id)
    for some_id in (
        run.run_id,
        run.occurrence_key,
        trigger.trigger_id,
        autopilot.autopilot_id,
        str(workspace_id),
    ):
        assert await explain(service, some_id)
        assert await explain(service, some_id, STRANGER) == []
    assert await explain(service, str(uuid4())) == []


async def test_hot_statements_read_only_what_they_need(
    service: Service,
    autopilot: rule_pb.Autopilot,
    rows: asyncpg.Connection[asyncpg.Record],
    database: TestDatabase,
) -> None:
    await run_now(service, autopilot.autopilot_id)
    admin = await database.admin()
    await admin.execute("SET search_path = autopilot")
    await admin.execute(
        "INSERT INTO runs (id, workspace_id, autopilot_id, source, state, occurrence_key,"
        " execution_mode, agent_id, rule_version_id, title, prompt, payload_ready,"
        " next_attempt_at, dispatch_deadline_at, finished_at)"
        " SELECT gen_random_uuid(), workspace_id, autopilot_id, source, 'completed', 'old:' || n,"
        " execution_mode, agent_id, rule_version_id, title, prompt, true, NULL, clock(), clock()"
        " FROM runs, generate_series(1, 20000) AS n"
    )
    await admin.execute("ANALYZE runs")
    rule_id, workspace_id = UUID(autopilot.autopilot_id), UUID(autopilot.workspace_id)
    for query, index, arguments in (
        (Q["claim_due_runs"], "runs_due_idx", (200, 30.0)),
        # What is decided under a rule's lock, or a period's, costs what is open or counts.
        (limits.Q["overlapping"], "runs_open_idx", ([rule_id],)),
        (limits.Q["release_buffered"], "runs_open_idx", ([rule_id], SCHEDULE, OTHERS)),
        (limits.Q["used_runs"], "runs_quota_idx", (workspace_id, datetime.now(UTC), 100)),
        (upkeep.Q["prune_runs"], "runs_finished_idx", (timedelta(days=400), 1000)),
    ):
        lines = await rows.fetch("EXPLAIN " + query.sql, *arguments)
        shown = "\n".join(line[0] for line in lines)
        assert index in shown, (query.name, shown)
        assert "Seq Scan on runs" not in shown, (query.name, shown)
