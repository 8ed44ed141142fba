"""What a hook may do otherwise than usual: rates, lanes, the loop breaker, copies, exclusions."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import grpc
import pytest
from tests.integration.webhook.conftest import SECRET, Gateway, Hook, Stage, signature
from tests.integration.webhook.peer import FakeAutopilot

from reveille.autopilot.v1 import dispatch_service_pb2 as autopilot_pb
from reveille.explain.v1 import explain_service_pb2 as explain_pb
from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_runtime.access import Role
from reveille_runtime.errors import InvalidArgument, NotFound, PermissionDenied, Unavailable
from reveille_runtime.rpc_errors import from_rpc_error

BODY = b'{"action":"opened"}'


def options(**fields: Any) -> endpoint_pb.EndpointOptions:
    return endpoint_pb.EndpointOptions(**fields)


async def send(gateway: Gateway, hook: Hook, number: int, first: int = 0) -> None:
    """Post distinct deliveries together."""
    await asyncio.gather(
        *(
            gateway.post(hook, json.dumps({"n": each}).encode(), delivery=f"d-{each}")
            for each in range(first, first + number)
        )
    )


async def states(gateway: Gateway) -> list[str]:
    return sorted(row["state"] for row in await gateway.rows())


async def test_a_burst_is_stored_whole_and_paced_without_an_attempt(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(rate_per_minute=6))
    await send(gateway, hook, 10)

    await gateway.work()

    waiting = [row for row in await gateway.rows() if row["state"] == "queued"]
    assert (len(peer.bodies), len(waiting)) == (6, 4)
    assert {row["dispatch_attempts"] for row in waiting} == {0}
    assert {row["message"] for row in waiting} == {"its hook is at its rate"}
    # Each waits for a moment of its own, ten seconds after the one before.
    moments = sorted(row["available_at"] for row in waiting)
    steps = {(later - one).total_seconds() for one, later in itertools.pairwise(moments)}
    assert steps == {10.0}
    gateway.database.move_clock(21)
    await gateway.work()
    assert len(peer.bodies) == 8
    gateway.database.move_clock(3600)
    await gateway.work()
    assert len(peer.bodies) == 10


async def test_one_hook_at_its_rate_does_not_hold_up_another(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    slow = await gateway.hook(options=options(rate_per_minute=1))
    other = await gateway.hook()
    await send(gateway, slow, 5)
    await gateway.post(other, BODY, delivery="other")

    await gateway.work()

    found = {row["dedupe_key"]: row["state"] for row in await gateway.rows()}
    assert found["other"] == "dispatched"
    assert len(peer.bodies) == 2


async def test_deliveries_of_one_lane_follow_each_other(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(lane_path="pr.number"))
    other = await gateway.hook(options=options(lane_path="pr.number"))
    sent = [(hook, "a1", 1), (hook, "a2", 1), (hook, "b1", 2), (hook, "a3", 1), (other, "c1", 1)]
    for at, name, number in sent:
        body = json.dumps({"pr": {"number": number}}).encode()
        await gateway.post(at, body, delivery=name)
    peer.may_dispatch.clear()
    await gateway.claim()
    # Those that are under way are still ahead of the others.
    await gateway.claim()
    taken = {row["dedupe_key"] for row in await gateway.rows() if row["lease_token"]}
    found = await gateway.explains().Explain(explain_pb.ExplainRequest(id=str(hook.id)))
    behind = [each.text for each in found.findings if each.state == "waiting_for_lane"]
    peer.may_dispatch.set()
    await gateway.idle()
    while len(peer.bodies) < len(sent):
        await gateway.work()

    # A hook's lanes are its own.
    assert taken == {"a1", "b1", "c1"}
    assert len(behind) == 2
    assert all("in its lane (1)" in text for text in behind)
    order = [each.headers["x-github-delivery"] for each in peer.bodies]
    assert sorted(order) == ["a1", "a2", "a3", "b1", "c1"]
    assert [each for each in order if each[0] == "a"] == ["a1", "a2", "a3"]


async def test_of_two_that_came_in_the_same_moment_one_is_first_in_its_lane(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(lane_path="pr"))
    for name in ("a1", "a2"):
        await gateway.post(hook, b'{"pr":1}', delivery=name)
    await gateway.sql("UPDATE webhook.deliveries SET received_at = now() - interval '1 s'")
    peer.may_dispatch.clear()

    await gateway.claim()
    taken = [row["dedupe_key"] for row in await gateway.rows() if row["lease_token"]]
    peer.may_dispatch.set()
    await gateway.idle()

    assert taken == ["a1"]


async def test_beyond_its_budget_a_hook_is_held_until_people_decide(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(hourly_budget=3))
    admin = gateway.stage.keys.user("ada", {hook.workspace_id: Role.ADMIN})
    await send(gateway, hook, 5)

    await gateway.work()
    late = await gateway.post(hook, BODY, delivery="late")
    copy = await gateway.post(hook, BODY, delivery="late")

    assert len(peer.bodies) == 3
    assert await states(gateway) == ["dispatched"] * 3 + ["held"] * 3
    assert (late.status, late.json["status"], late.json["reason"]) == (202, "held", "loop_breaker")
    assert copy.json["status"] == "duplicate"
    found = (await gateway.explains().Explain(explain_pb.ExplainRequest(id=str(hook.id)))).findings
    endpoint = next(each for each in found if each.subject == "hook")
    assert (endpoint.state, endpoint.command) == (
        "holding",
        f"reveille deliveries release {hook.id}",
    )
    assert "3 are held" in endpoint.text
    held = next(each for each in found if each.state == "held")
    assert held.command == f"reveille deliveries release {hook.id}"

    released = await gateway.deliveries(admin).ReleaseHeldDeliveries(
        pb.ReleaseHeldDeliveriesRequest(endpoint_id=str(hook.id))
    )
    await gateway.work()

    assert released.deliveries == 3
    assert await states(gateway) == ["dispatched"] * 6
    # The breaker is closed, and counts anew.
    after = await gateway.post(hook, BODY, delivery="after")
    assert after.json["status"] == "accepted"


async def test_a_breaker_stays_open_after_its_hour_until_people_decide(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(hourly_budget=1))
    admin = gateway.stage.keys.user("ada", {hook.workspace_id: Role.ADMIN})
    await send(gateway, hook, 2)
    await gateway.work()
    opened = await gateway.sql("SELECT tripped_at FROM webhook.endpoints")
    gateway.database.move_clock(3601)

    first = str((await gateway.rows())[0]["id"])
    await gateway.deliveries(admin).ReplayDelivery(pb.ReplayDeliveryRequest(delivery_id=first))
    await gateway.work()

    assert sorted(await states(gateway)) == ["dispatched", "held", "held"]
    # People are told since when.
    assert await gateway.sql("SELECT tripped_at FROM webhook.endpoints") == opened is not None


async def test_what_is_held_can_be_purged(gateway: Gateway, peer: FakeAutopilot) -> None:
    hook = await gateway.hook(options=options(hourly_budget=1))
    admin = gateway.stage.keys.user("ada", {hook.workspace_id: Role.ADMIN})
    await send(gateway, hook, 3)
    await gateway.work()

    purged = await gateway.deliveries(admin).PurgeHeldDeliveries(
        pb.PurgeHeldDeliveriesRequest(endpoint_id=str(hook.id))
    )
    await gateway.work()

    assert purged.deliveries == 2
    assert await states(gateway) == ["dispatched", "ignored", "ignored"]
    reasons = {row["reason"] for row in await gateway.rows() if row["state"] == "ignored"}
    assert reasons == {"purged"}
    assert len(peer.bodies) == 1
    # Its id is free: what was purged may be sent again.
    assert (await gateway.post(hook, BODY, delivery="d-2")).json["status"] == "accepted"


async def test_a_purge_ends_the_runs_first_and_is_repeated_when_autopilot_was_away(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(hourly_budget=1))
    admin = gateway.stage.keys.user("ada", {hook.workspace_id: Role.ADMIN})
    await send(gateway, hook, 3)
    await gateway.work()
    held = [row for row in await gateway.rows() if row["state"] == "held"]
    request = pb.PurgeHeldDeliveriesRequest(endpoint_id=str(hook.id))

    peer.away = grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.deliveries(admin).PurgeHeldDeliveries(request)
    error = from_rpc_error(caught.value)
    still = await states(gateway)
    peer.away = None
    purged = await gateway.deliveries(admin).PurgeHeldDeliveries(request)

    assert isinstance(error, Unavailable)
    assert "could not be asked to end the runs" in error.message
    assert still == ["dispatched", "held", "held"]
    assert purged.deliveries == 2
    # Before they are let go, and of those that were once more after it.
    assert sorted(peer.withdrawn) == sorted(2 * [str(row["id"]) for row in held])


async def test_what_is_released_is_judged_anew_and_runs_as_autopilot_says(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(hourly_budget=1))
    admin = gateway.stage.keys.user("ada", {hook.workspace_id: Role.ADMIN})
    await send(gateway, hook, 2)
    await gateway.work()
    (held,) = [row for row in await gateway.rows() if row["state"] == "held"]
    clean = str(uuid4())
    # The run that it was admitted as was given up, so that there is another now.
    peer.admits = lambda facts: autopilot_pb.AdmitResult(
        delivery_id=facts.delivery_id, outcome=autopilot_pb.ADMIT_OUTCOME_ACCEPTED, run_id=clean
    )
    gateway.database.move_clock(600)

    await gateway.deliveries(admin).ReleaseHeldDeliveries(
        pb.ReleaseHeldDeliveriesRequest(endpoint_id=str(hook.id))
    )
    waiting = next(each for each in await gateway.rows() if each["id"] == held["id"])
    await gateway.work()

    assert held["admission"] == "accepted"
    # It is due from now on: the time that it was held is nobody's delay.
    assert waiting["available_at"] - held["available_at"] > timedelta(seconds=500)
    assert (peer.bodies[-1].delivery_id, peer.bodies[-1].run_id) == (str(held["id"]), clean)
    row = next(each for each in await gateway.rows() if each["id"] == held["id"])
    assert (row["state"], str(row["run_id"])) == ("dispatched", clean)


async def test_what_people_released_is_not_held_again_and_not_counted(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(hourly_budget=2, rate_per_minute=6))
    admin = gateway.stage.keys.user("ada", {hook.workspace_id: Role.ADMIN})
    await send(gateway, hook, 7)
    await gateway.work()
    before = await states(gateway)

    await gateway.deliveries(admin).ReleaseHeldDeliveries(
        pb.ReleaseHeldDeliveriesRequest(endpoint_id=str(hook.id))
    )
    await gateway.work()
    # Four of a minute's six places were left: the fifth waits for its own.
    paced = await states(gateway)
    await send(gateway, hook, 3, first=10)
    gateway.database.move_clock(120)
    await gateway.work()

    assert before == ["dispatched"] * 2 + ["held"] * 5
    assert paced == ["dispatched"] * 6 + ["queued"]
    # The budget is whole for what comes in, and what is beyond it is held.
    assert await states(gateway) == ["dispatched"] * 9 + ["held"]


async def test_an_hour_later_the_budget_is_whole_again(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(hourly_budget=2))
    await send(gateway, hook, 2)
    await gateway.work()
    gateway.database.move_clock(3601)
    await send(gateway, hook, 2, first=2)

    await gateway.work()

    assert await states(gateway) == ["dispatched"] * 4


async def test_held_deliveries_are_for_administrators_of_their_workspace(gateway: Gateway) -> None:
    hook = await gateway.hook()
    stranger = gateway.stage.keys.user("eve", {})
    member = gateway.stage.keys.user("maria", {hook.workspace_id: Role.MEMBER})
    for token, error in ((stranger, NotFound), (member, PermissionDenied)):
        stub = gateway.deliveries(token)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ReleaseHeldDeliveries(
                pb.ReleaseHeldDeliveriesRequest(endpoint_id=str(hook.id))
            )
        assert isinstance(from_rpc_error(caught.value), error)


@pytest.mark.parametrize("other", ["d-2", ""])
@pytest.mark.parametrize("refuses", [False, True])
async def test_a_captured_body_under_a_new_id_is_marked_or_refused(
    gateway: Gateway, peer: FakeAutopilot, refuses: bool, other: str
) -> None:
    policy = endpoint_pb.CONTENT_POLICY_REFUSE if refuses else endpoint_pb.CONTENT_POLICY_FLAG
    hook = await gateway.hook(options=options(content_policy=policy))

    first = await gateway.post(hook, BODY, delivery="d-1")
    again = await gateway.post(hook, BODY, delivery="d-1")
    replayed = await gateway.post(hook, BODY, delivery=other)

    rows = {row["response_status"]: row for row in await gateway.rows()}
    original = await gateway.rows()
    assert again.json["status"] == "duplicate"
    assert original[0]["content_copy_of"] is None
    if refuses:
        assert (replayed.status, replayed.json["reason"]) == (409, "replayed_content")
        row = rows[409]
        assert (row["state"], row["dedupe_key"]) == ("rejected", None)
        assert first.json["delivery_id"] in row["message"]
    else:
        assert replayed.json["status"] == "accepted"
        assert str(original[1]["content_copy_of"]) == first.json["delivery_id"]
    await gateway.work()
    assert len(peer.bodies) == (1 if refuses else 2)


async def test_content_that_came_to_nothing_may_come_again(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    peer.admits = lambda facts: autopilot_pb.AdmitResult(
        delivery_id=facts.delivery_id, outcome=autopilot_pb.ADMIT_OUTCOME_IGNORED
    )
    await gateway.post(hook, BODY, delivery="d-1")
    # The judgement is written behind the answer.
    await gateway.settled()
    peer.admits = FakeAutopilot.admits

    await gateway.post(hook, BODY, delivery="d-2")

    assert [row["content_copy_of"] for row in await gateway.rows()] == [None, None]


async def test_of_copies_that_come_together_one_is_taken(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=options(content_policy=endpoint_pb.CONTENT_POLICY_REFUSE))

    answers = await asyncio.gather(
        *(gateway.post(hook, BODY, delivery=f"d-{number}") for number in range(20))
    )

    assert sorted(answer.status for answer in answers) == [200] + [409] * 19


async def test_what_nobody_signed_has_no_content_key(gateway: Gateway) -> None:
    plain = await gateway.hook(secret=None)
    token = await gateway.hook("generic_token")
    await gateway.post(plain, BODY, secret=None, delivery="d-1")
    await gateway.post(token, BODY, {"Authorization": SECRET.decode()}, secret=None)

    rows = await gateway.rows()
    assert [row["signature_state"] for row in rows] == ["not_required", "valid"]
    assert [row["content_key"] for row in rows] == [None, None]


async def test_our_own_doing_is_ignored_before_anybody_is_asked(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(
        options=options(excluded_senders=["our-bot"], own_markers=["<!-- by reveille -->"])
    )
    bodies = [
        b'{"sender":{"login":"Our-Bot"}}',
        b'{"sender":{"login":"octocat"},"text":"<!-- by reveille -->"}',
        b'{"sender":{"login":"octocat"}}',
    ]

    answers = [
        await gateway.post(hook, body, delivery=f"d-{number}") for number, body in enumerate(bodies)
    ]

    assert [(each.json["status"], each.json.get("reason")) for each in answers] == [
        ("ignored", "sender_excluded"),
        ("ignored", "own_marker"),
        ("accepted", None),
    ]
    assert len(peer.admitted) == 1
    assert [row["sender"] for row in await gateway.rows()] == ["Our-Bot", "octocat", "octocat"]
    # An ignored one does not keep its id.
    assert [row["dedupe_key"] for row in await gateway.rows()] == [None, None, "d-2"]
    packed = await gateway.post(hook, gzip.compress(bodies[1]), {"Content-Encoding": "gzip"})
    assert packed.json["reason"] == "own_marker"


async def test_a_hook_says_how_its_sender_signs(gateway: Gateway) -> None:
    generic = endpoint_pb.GenericScheme(header="X-Sign", prefix="v1=", event="build")
    hook = await gateway.hook("generic_hmac", options=options(generic=generic))
    value = signature(SECRET, BODY).removeprefix("sha256=")

    right = await gateway.post(hook, BODY, {"X-Sign": f"v1={value}"}, secret=None)
    wrong = await gateway.post(hook, BODY, {"X-Sign": value}, secret=None)

    assert (right.status, wrong.status) == (200, 401)
    assert (await gateway.rows())[0]["event"] == "build"


async def test_a_hook_says_which_header_holds_its_token(gateway: Gateway) -> None:
    generic = endpoint_pb.GenericScheme(header="X-Api-Key", event="build")
    hook = await gateway.hook("generic_token", options=options(generic=generic))

    right = await gateway.post(hook, BODY, {"X-Api-Key": SECRET.decode()}, secret=None)
    wrong = await gateway.post(hook, BODY, {"Authorization": SECRET.decode()}, secret=None)

    assert (right.status, wrong.status) == (200, 401)
    assert (await gateway.rows())[0]["event"] == "build"


@pytest.mark.parametrize(
    ("fields", "provider", "field"),
    [
        ({"rate_per_minute": -1}, "github", "endpoint.options.rate_per_minute"),
        ({"hourly_budget": 600_001}, "github", "endpoint.options.hourly_budget"),
        ({"lane_path": "x" * 201}, "github", "endpoint.options.lane_path"),
        ({"lane_path": "a..b"}, "github", "endpoint.options.lane_path"),
        ({"lane_path": " "}, "github", "endpoint.options.lane_path"),
        ({"excluded_senders": [""]}, "github", "endpoint.options.excluded_senders[0]"),
        ({"own_markers": ["x"] * 21}, "github", "endpoint.options.own_markers"),
        ({"content_policy": 9}, "github", "endpoint.options.content_policy"),
        (
            {"generic": endpoint_pb.GenericScheme(algorithm="md5")},
            "generic_hmac",
            "endpoint.options.generic.algorithm",
        ),
        ({"generic": endpoint_pb.GenericScheme()}, "github", "endpoint.options.generic"),
        *(
            (
                {"generic": endpoint_pb.GenericScheme(header="X-Key", event="e", **{name: value})},
                "generic_token",
                f"endpoint.options.generic.{name}",
            )
            for name, value in (
                ("algorithm", "sha256"),
                ("algorithm", "md5"),
                ("encoding", "hex"),
                ("prefix", "Bearer"),
                ("separator", ","),
            )
        ),
    ],
)
async def test_a_wish_that_cannot_be_is_refused_by_its_field(
    gateway: Gateway, fields: dict[str, Any], provider: str, field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.hook(provider, secret=None, options=options(**fields))

    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidArgument)
    assert [each.field for each in error.violations] == [field]
    # Whoever asks before hears the same.
    with pytest.raises(grpc.aio.AioRpcError) as asked:
        await gateway.endpoints().CheckEndpoint(
            endpoint_pb.CheckEndpointRequest(provider=provider, options=options(**fields))
        )
    before = from_rpc_error(asked.value)
    assert isinstance(before, InvalidArgument)
    assert before.message.replace("options.", "endpoint.options.", 1) == error.message
    assert await gateway.sql("SELECT count(*) FROM webhook.endpoints") == 0


async def test_a_replica_at_its_settings_paces_too(stage: Stage, peer: FakeAutopilot) -> None:
    async with stage.gateway(rate_per_minute=2, hourly_budget=0) as gateway:
        hook = await gateway.hook()
        await send(gateway, hook, 4)
        await gateway.work()

        assert len(peer.bodies) == 2
