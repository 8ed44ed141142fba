"""What the gateway answers to one delivery sent in many ways, and what it keeps of each."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reveille.autopilot.v1 import autopilot_pb2, run_pb2
from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2
from reveille.webhook.v1 import delivery_service_pb2 as deliveries

from .harness import ROOT, RUN_ONLY, Hook, World, marks_in
from .http import Answer, example_body, github_headers

PAYLOADS = sorted((ROOT.parent / "shared" / "cases" / "payloads").glob("github_*.json"))


async def make_hook(world: World, **settings: Any) -> tuple[str, str, Hook, Path]:
    """Make a rule of its own with a marking agent and a hook; also give the agent's marks."""
    workspace_id = await world.create_workspace()
    agent_id, marks = await world.create_marking_agent(workspace_id)
    rule = await world.create_autopilot(workspace_id, agent_id, RUN_ONLY)
    return workspace_id, rule, await world.create_hook(rule, **settings), marks


async def test_the_same_again_is_a_duplicate(world: World) -> None:
    workspace_id, _, hook, marks = await make_hook(world)

    first = await world.post_github(hook, delivery="5a5a0000-0000-4000-8000-000000000001")
    again = await world.post_github(hook, delivery="5a5a0000-0000-4000-8000-000000000001")

    assert (first.status, first.json["status"]) == (200, "accepted")
    assert (again.status, again.json["status"]) == (200, "duplicate")
    assert again.json["delivery_id"] == first.json["delivery_id"]
    assert again.json["run_id"] == first.json["run_id"]
    run = await world.completed(first.json["run_id"])
    # A duplicate that comes after the end changes nothing either.
    late = await world.post_github(hook, delivery="5a5a0000-0000-4000-8000-000000000001")
    assert late.json["status"] == "duplicate"
    delivery = await world.finished_delivery(first.json["delivery_id"])
    assert delivery.attempt_count == 3
    assert len(await world.runs_of(workspace_id, hook.trigger_id)) == 1
    assert len(marks_in(marks)) == 1
    assert (await world.run(run.run_id)).state == run_pb2.RUN_STATE_COMPLETED


async def test_many_at_once_are_one_delivery(world: World) -> None:
    workspace_id, _, hook, marks = await make_hook(world)

    answers = await asyncio.gather(
        *(
            world.post_github(hook, delivery="5a5a0000-0000-4000-8000-000000000002")
            for _ in range(12)
        )
    )

    assert Counter(answer.json["status"] for answer in answers)["accepted"] == 1
    assert {answer.status for answer in answers} == {200}
    assert len({answer.json["delivery_id"] for answer in answers}) == 1
    (run,) = await world.runs_of(workspace_id, hook.trigger_id)
    await world.completed(run.run_id)
    assert await world.count("webhook.deliveries", "endpoint_id = $1::uuid", hook.trigger_id) == 1
    assert len(marks_in(marks)) == 1


async def test_a_bad_signature_is_rejected_and_kept(world: World) -> None:
    workspace_id, _, hook, _ = await make_hook(world)
    body = example_body()
    good = github_headers(body, hook.secret)

    wrong = await world.post(hook.path, body + b" ", good)
    absent = await world.post(hook.path, body, github_headers(body, None))

    for answer, state, reason in (
        (wrong, deliveries.SIGNATURE_STATE_INVALID, reason_pb2.REASON_INVALID_SIGNATURE),
        (absent, deliveries.SIGNATURE_STATE_MISSING, reason_pb2.REASON_MISSING_SIGNATURE),
    ):
        assert (answer.status, answer.json["status"]) == (401, "rejected")
        delivery = await world.delivery(answer.json["delivery_id"])
        assert delivery.state == deliveries.DELIVERY_STATE_REJECTED
        assert delivery.signature_state == state
        assert delivery.reason == reason
        assert not delivery.run_id
    assert await world.runs_of(workspace_id, hook.trigger_id) == []
    # A rejected one has not used up its id.
    assert (await world.post(hook.path, body, good)).json["status"] == "accepted"


async def test_what_the_rule_does_not_want_is_ignored_with_its_reason(world: World) -> None:
    wanted = autopilot_pb2.EventFilter(event="issues", actions=["closed"])
    workspace_id, rule, hook, _ = await make_hook(world, filters=[wanted])

    filtered = await world.post_github(hook)
    await world.client.autopilots.PauseAutopilot(autopilot.PauseAutopilotRequest(autopilot_id=rule))
    body = example_body().replace(b'"action":"opened"', b'"action":"closed"')
    paused = await world.post_github(hook, body)
    await world.client.autopilots.ResumeAutopilot(
        autopilot.ResumeAutopilotRequest(autopilot_id=rule)
    )
    taken = await world.post_github(hook, body)

    assert (filtered.status, filtered.json["status"]) == (200, "ignored")
    assert filtered.json["reason"] == "event_filtered"
    assert (paused.json["status"], paused.json["reason"]) == ("ignored", "autopilot_paused")
    delivery = await world.delivery(filtered.json["delivery_id"])
    assert delivery.state == deliveries.DELIVERY_STATE_IGNORED
    assert delivery.reason == reason_pb2.REASON_EVENT_FILTERED
    assert taken.json["status"] == "accepted"
    (run,) = await world.runs_of(workspace_id, hook.trigger_id)
    await world.completed(run.run_id)


async def test_a_rotated_address_is_gone_and_its_successor_works(world: World) -> None:
    workspace_id, _, hook, _ = await make_hook(world)

    rotated = await world.client.autopilots.RotateWebhookToken(
        autopilot.RotateWebhookTokenRequest(trigger_id=hook.trigger_id)
    )

    assert rotated.endpoint_ready
    assert (await world.post_github(hook)).status == 404
    moved = Hook(hook.trigger_id, rotated.hook_path, hook.secret)
    answer = await world.post_github(moved)
    assert answer.json["status"] == "accepted"
    await world.completed(answer.json["run_id"])
    assert len(await world.runs_of(workspace_id, hook.trigger_id)) == 1


def request_of(case: Mapping[str, Any]) -> bytes:
    """Turn a case into the bytes it was sent as."""
    raw, body = case.get("raw"), case.get("body")
    if raw is not None:
        return str(raw).encode()
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def check_answer(answer: Answer, wanted: Mapping[str, Any]) -> None:
    """Hold an answer against what a case expects of it."""
    status = wanted.get("status", "2xx")
    accepted = status if isinstance(status, list) else [status]
    assert any(
        answer.status == each or (each == "2xx" and 200 <= answer.status < 300) for each in accepted
    ), answer
    if "json" in wanted:
        assert answer.json == wanted["json"]
    if "body" in wanted:
        assert answer.body.decode() == wanted["body"]
    assert wanted.get("body_contains", "") in answer.body.decode()
    assert answer.headers.get("content-type", "").startswith(wanted.get("content_type", ""))
    for name, value in wanted.get("headers", {}).items():
        assert answer.headers[name.lower()] == value


@pytest.mark.skipif(not PAYLOADS, reason="the folder of third-party samples is not here")
async def test_every_request_of_github_is_answered_and_kept_as_it_should(world: World) -> None:
    workspace_id = await world.create_workspace()
    await world.create_triage_agent(workspace_id)  # so that heartbeat knows the workspace
    made = await world.client.agents.CreateAgent(
        agent_pb2.CreateAgentRequest(workspace_id=workspace_id, name="echo", adapter="echo")
    )
    rule = await world.create_autopilot(workspace_id, made.agent.agent_id, RUN_ONLY)
    hooks: dict[str | None, Hook] = {}
    problems: list[str] = []
    for file in PAYLOADS:
        case = json.loads(file.read_text(encoding="utf-8"))
        secret = case.get("secret")
        if secret not in hooks:
            hooks[secret] = await world.create_hook(rule, secret=secret)
        body = request_of(case)
        answer = await world.post(hooks[secret].path, body, case["headers"])
        try:
            check_answer(answer, case.get("expected_response", {}))
            delivery = await world.delivery(answer.json["delivery_id"])
            assert delivery.event == case["expected_event"]
            assert delivery.action == case.get("expected_action", delivery.action)
            assert delivery.dedupe_id == case.get("expected_dedupe_id", delivery.dedupe_id)
            assert delivery.body_bytes == case.get("body_bytes", len(body))
            assert delivery.body_sha256.hex() == case.get("body_sha256", delivery.body_sha256.hex())
        except (AssertionError, KeyError) as problem:
            problems.append(f"{file.name}: {problem!r} (answered {answer})")
    assert problems == []
