"""What people do with deliveries: search, replay, release, purge, watch, explain."""

from __future__ import annotations

import hashlib

import grpc
import pytest

from reveille.common.v1 import reason_pb2
from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille_cli.apis import DELIVERIES
from reveille_runtime.errors import Unavailable

from .conftest import Answer, Desk

BODY = b'{"a":1}'
WORKSPACE = "0197f3a0-0000-7000-8000-00000000000a"
TRIGGER = "0197f3a0-0000-7000-8000-00000000000b"


def test_a_signature_is_explained(desk: Desk) -> None:
    told = pb.ExplainSignatureResponse(
        signature_state=pb.SIGNATURE_STATE_INVALID,
        findings=[pb.SignatureFinding(code="clock_off", text="its time is 400 s off")],
    )

    found = desk.run(
        "hooks", "explain", "d", answers=[Answer(DELIVERIES, "ExplainSignature", told)]
    )
    del told.findings[:]
    nothing = desk.run(
        "hooks", "explain", "d", answers=[Answer(DELIVERIES, "ExplainSignature", told)]
    )

    assert (found.exit_code, found.out) == (0, "clock_off: its time is 400 s off\n")
    assert nothing.exit_code == 1


@pytest.mark.parametrize(
    ("delivery", "said"),
    [
        (
            pb.Delivery(
                state=pb.DELIVERY_STATE_REJECTED,
                reason=reason_pb2.REASON_BODY_TOO_LARGE,
                message="it is too large",
            ),
            "It was refused, and not for its signature: body_too_large: it is too large\n",
        ),
        (
            pb.Delivery(state=pb.DELIVERY_STATE_DISPATCHED),
            "Nothing failed: the signature is not_required.\n",
        ),
    ],
)
def test_what_was_refused_for_something_else_is_said(
    desk: Desk, delivery: pb.Delivery, said: str
) -> None:
    told = pb.ExplainSignatureResponse(signature_state=pb.SIGNATURE_STATE_NOT_REQUIRED)
    answers = [
        Answer(DELIVERIES, "ExplainSignature", told),
        Answer(DELIVERIES, "GetDelivery", pb.GetDeliveryResponse(delivery=delivery)),
    ]

    outcome = desk.run("hooks", "explain", "d", answers=answers)

    assert (outcome.exit_code, outcome.out) == (0, said)


def test_deliveries_are_searched_replayed_released_purged_and_watched(desk: Desk) -> None:
    listed = Answer(DELIVERIES, "ListDeliveries", pb.ListDeliveriesResponse())
    dispatched = pb.Delivery(delivery_id="d-1", event="push", state=pb.DELIVERY_STATE_DISPATCHED)
    news = pb.WatchDeliveriesResponse(delivery=dispatched)
    replayed = pb.ReplayDeliveryResponse(delivery=pb.Delivery(delivery_id="new"))
    released = pb.ReleaseHeldDeliveriesResponse(deliveries=3)
    purged = pb.PurgeHeldDeliveriesResponse(deliveries=2)
    digest = hashlib.sha256(BODY).hexdigest()

    search = desk.run(
        *("deliveries", "list", "-w", WORKSPACE, "--event", "push", "--id", "d-1"),
        *("--hash", digest, "--since", "2026-09-21T14:13:20Z", "--provider", "github"),
        answers=[listed],
    )
    replay = desk.run(
        *("deliveries", "replay", "d", "--request-id", "once", "-o", "json"),
        answers=[Answer(DELIVERIES, "ReplayDelivery", replayed)],
    )
    release = desk.run(
        *("deliveries", "release", TRIGGER, "-o", "json"),
        answers=[Answer(DELIVERIES, "ReleaseHeldDeliveries", released)],
    )
    purge = desk.run(
        *("deliveries", "purge", TRIGGER, "-o", "json"),
        answers=[Answer(DELIVERIES, "PurgeHeldDeliveries", purged)],
    )
    watched = desk.run(
        *("deliveries", "watch", "-w", WORKSPACE),
        answers=[Answer(DELIVERIES, "WatchDeliveries", [news])],
    )

    assert (search.request.event, search.request.dedupe_id) == ("push", "d-1")
    assert search.request.body_sha256.hex() == digest
    assert search.request.start_time.seconds == 1_790_000_000
    assert (replay.request.request_id, replay.json["delivery_id"]) == ("once", "new")
    assert (release.json["deliveries"], purge.json["deliveries"]) == (3, 2)
    assert watched.out == "d-1  push  dispatched\n"
    assert desk.run("deliveries", "list", "-w", WORKSPACE, "--hash", "xyz").exit_code == 2


def test_watching_goes_on_where_a_stream_ends_of_its_age(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reveille_cli.patience.FIRST_PAUSE", 0.0)
    monkeypatch.setattr("reveille_cli.following.HEARD_AFTER", 0.0)
    old = Unavailable("NOT_SERVING", "no stream lasts longer; connect again", retry_after=0.2)
    news = pb.WatchDeliveriesResponse(delivery=pb.Delivery(delivery_id="d-1", event="push"))
    outcome = desk.run(
        *("deliveries", "watch", "-w", WORKSPACE),
        answers=[
            Answer(DELIVERIES, "WatchDeliveries", old),
            Answer(DELIVERIES, "WatchDeliveries", grpc.StatusCode.UNAVAILABLE),
            Answer(DELIVERIES, "WatchDeliveries", [news]),
        ],
    )
    assert (outcome.exit_code, outcome.err) == (0, "")
    assert outcome.out == "d-1  push\n"
