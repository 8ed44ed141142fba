"""What senders are answered, in which order things are judged, and what is left of a request."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import brotli
import grpc
import pytest
from tests.integration.webhook.conftest import (
    SECRET,
    Gateway,
    Hook,
    Response,
    Stage,
    endpoint_of,
    read_response,
    signature,
    stamp,
)
from tests.integration.webhook.peer import FakeAutopilot, run_of

from reveille.autopilot.v1 import dispatch_service_pb2 as pb
from reveille.common.v1 import reason_pb2
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_testkit.waiting import eventually
from reveille_webhook.domain.delivery import Answer
from reveille_webhook.usecases.receive import Receive

BODY = b'{"action":"opened"}'


async def test_hooks_that_are_not_there_look_the_same(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    deleted, mismatched = await gateway.hook(), await gateway.hook()
    await gateway.endpoints().DeleteEndpoint(
        endpoint_pb.DeleteEndpointRequest(endpoint_id=str(deleted.id), revision=2)
    )
    peer.admits = lambda facts: pb.AdmitResult(
        delivery_id=facts.delivery_id, outcome=pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT
    )

    answers = [
        await gateway.post(deleted, BODY),
        await gateway.post(mismatched, BODY),
        # By now it is as if it were not there, and leaves no row.
        await gateway.post(mismatched, BODY),
        await gateway.request("POST", "/hooks/awt_nobody", BODY),
        await gateway.request("POST", "/hooks/awt_nobody/", BODY),
        await gateway.request("POST", "/hooks/", BODY),
        await gateway.request("POST", "/elsewhere", BODY),
    ]

    assert {answer.status for answer in answers} == {404}
    assert len({answer.body for answer in answers}) == 1
    assert len({tuple(sorted(answer.headers.items() - _date(answer))) for answer in answers}) == 1
    assert "server" not in answers[0].headers
    row = await gateway.row()
    assert (row["state"], row["reason"], row["response_status"]) == (
        "failed",
        "trigger_not_found",
        404,
    )


async def test_a_hook_that_autopilot_puts_again_is_there_at_once(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    peer.admits = lambda facts: pb.AdmitResult(
        delivery_id=facts.delivery_id, outcome=pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT
    )
    disowned = await gateway.post(hook, BODY)
    peer.admits = FakeAutopilot.admits

    await gateway.endpoints().PutEndpoint(
        endpoint_pb.PutEndpointRequest(endpoint=endpoint_of(hook, revision=2))
    )

    assert (disowned.status, (await gateway.post(hook, BODY)).status) == (404, 200)


def _date(answer: Response) -> set[tuple[str, str]]:
    return {("date", answer.headers["date"])}


async def test_hooks_take_post_alone(gateway: Gateway) -> None:
    hook = await gateway.hook()
    heads = []
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"):
        request = f"{method} /hooks/{hook.token} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.edge.port)
            writer.write(request.encode())
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.close()

    assert all(head.startswith(b"HTTP/1.1 405 ") for head in heads)
    assert all(b"allow: POST\r\n" in head for head in heads)


@pytest.mark.parametrize("host", ["[", "[x]", "]:80", "\xff"])
async def test_a_host_that_is_none_is_not_read(
    gateway: Gateway, peer: FakeAutopilot, host: str
) -> None:
    hook = await gateway.hook("slack", secret=None)
    rest = f"/hooks/{hook.token}?a=b HTTP/1.1\r\nHost: {host}\r\nContent-Length: "

    asked = await gateway.raw(f"GET {rest}0\r\n\r\n".encode("latin-1"))
    posted = await gateway.raw(f"POST {rest}2\r\n\r\n{{}}".encode("latin-1"))

    assert (asked.status, posted.status) == (405, 200)


async def test_a_declared_body_over_the_cap_is_refused_before_it_is_read(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(max_body_bytes=1000)
    head = (
        f"POST /hooks/{hook.token} HTTP/1.1\r\nHost: x\r\n"
        "Content-Type: application/json\r\nContent-Length: 1001\r\n\r\n"
    )

    refused = await gateway.raw(head.encode())
    exact = b'"' + b"x" * 998 + b'"'
    taken = await gateway.post(hook, exact)

    assert (refused.status, refused.json["error"]["reason"]) == (413, "body_too_large")
    # A scalar is not what a hook is for, but it is within the cap.
    assert (taken.status, taken.json["reason"]) == (200, "unparsable")
    assert peer.admitted == []


async def test_a_body_over_the_cap_is_refused_while_it_streams(gateway: Gateway) -> None:
    hook = await gateway.hook(max_body_bytes=256 * 1024)
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    sent = 0
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.edge.port)
        writer.write(
            f"POST /hooks/{hook.token} HTTP/1.1\r\nHost: x\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        reading = asyncio.ensure_future(read_response(reader))
        while not reading.done():
            writer.write(chunk)
            sent += len(chunk)
            await writer.drain()
            await asyncio.sleep(0)
        answer = await reading
        writer.close()

    assert answer.status == 413
    # What lies in socket buffers is sent, but nowhere near what an endless body would bring.
    assert sent < 16 * 1024 * 1024
    # People see that it was refused, and nothing of it is kept.
    row = await gateway.row()
    assert (row["state"], row["reason"], row["response_status"]) == (
        "rejected",
        "body_too_large",
        413,
    )
    assert (row["body"], row["dedupe_key"]) == (b"", None)


@pytest.mark.parametrize(
    ("coding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("br", brotli.compress)],
)
async def test_a_compressed_body_is_verified_as_it_came_and_kept_as_it_reads(
    gateway: Gateway, coding: str, pack: Callable[[bytes], bytes]
) -> None:
    hook = await gateway.hook()
    packed = pack(BODY)

    answer = await gateway.post(hook, packed, {"Content-Encoding": coding})
    over = await gateway.post(hook, pack(b"[" + b" " * (1 << 20)), {"Content-Encoding": coding})
    cut = await gateway.post(hook, packed[:-2], {"Content-Encoding": coding})
    half = await gateway.post(hook, pack(b'{"action":'), {"Content-Encoding": coding})

    row, large, broken, unread = await gateway.rows()
    assert (answer.json["status"], row["body"], row["action"]) == ("accepted", BODY, "opened")
    assert row["headers"]["content-encoding"] == coding
    assert (over.status, large["reason"], large["body"]) == (413, "body_too_large", b"")
    # The sender hears what it hears where the body was too large as it came.
    assert over.json["error"]["reason"] == "body_too_large"
    assert (cut.json["status"], broken["reason"]) == ("ignored", "unparsable")
    assert broken["body"] == packed[:-2]
    # People look at what could not be read as far as it could be.
    assert (half.json["status"], unread["reason"]) == ("ignored", "unparsable")
    assert unread["body"] == b'{"action":'


async def test_another_coding_is_refused_with_the_way_out(gateway: Gateway) -> None:
    hook = await gateway.hook()

    answer = await gateway.post(hook, BODY, {"Content-Encoding": "zstd"})
    plain = await gateway.post(hook, BODY, {"Content-Encoding": "identity"})

    assert (answer.status, answer.headers["accept-encoding"]) == (
        415,
        "gzip, deflate, br, identity",
    )
    assert answer.json["error"]["reason"] == "content_encoding_not_supported"
    assert plain.status == 200


BADLY_SIGNED: dict[str, tuple[Mapping[str, str], str, str]] = {
    "missing": ({}, "missing_signature", "missing"),
    "other secret": (
        {"X-Hub-Signature-256": signature(b"other", BODY)},
        "invalid_signature",
        "invalid",
    ),
    "not ASCII": ({"X-Hub-Signature-256": "sha256=\xe9"}, "invalid_signature", "invalid"),
    "legacy alone": ({"X-Hub-Signature": "sha1=00"}, "missing_signature", "missing"),
}


async def test_what_is_not_signed_rightly_is_kept_as_rejected_and_goes_nowhere(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    for headers, reason, state in BADLY_SIGNED.values():
        answer = await gateway.post(hook, BODY, headers, secret=None, delivery="d-1")

        row = (await gateway.rows())[-1]
        assert answer.status == 401
        assert answer.json == {
            "status": "rejected",
            "delivery_id": str(row["id"]),
            "reason": reason,
        }
        assert (row["state"], row["signature_state"], row["reason"]) == ("rejected", state, reason)
        assert row["dedupe_key"] is None
    await gateway.work()
    assert peer.admitted == []
    # The true one, under the same id, is not in their way.
    assert (await gateway.post(hook, BODY, delivery="d-1")).json["status"] == "accepted"


async def test_expired_secrets_refuse_and_a_second_live_one_counts(gateway: Gateway) -> None:
    hook = await gateway.hook()
    second = b"the secret that comes after it"
    now = await gateway.sql("SELECT extract(epoch FROM clock_timestamp())")
    stub = gateway.endpoints()
    await stub.AddSecret(
        endpoint_pb.AddSecretRequest(
            endpoint_id=str(hook.id),
            secret_id="11111111-1111-4111-8111-111111111111",
            secret=second,
            expire_time=stamp(float(now) + 3600),
        )
    )

    first = await gateway.post(hook, BODY)
    other = await gateway.post(hook, BODY, secret=second)
    await stub.RemoveSecret(
        endpoint_pb.RemoveSecretRequest(endpoint_id=str(hook.id), secret_id=str(hook.secret_id))
    )
    removed = await gateway.post(hook, BODY)
    gateway.database.move_clock(3601)
    expired = await gateway.post(hook, BODY, secret=second)
    unsigned = await gateway.post(hook, BODY, secret=None)

    statuses = [each.status for each in (first, other, removed, expired, unsigned)]
    assert statuses == [200, 200, 401, 401, 401]


async def test_the_last_use_of_a_secret_is_noted_to_the_minute(gateway: Gateway) -> None:
    hook = await gateway.hook()
    second = b"the secret that comes after it"
    await gateway.endpoints().AddSecret(
        endpoint_pb.AddSecretRequest(
            endpoint_id=str(hook.id),
            secret_id="11111111-1111-4111-8111-111111111111",
            secret=second,
        )
    )
    await gateway.post(hook, BODY, secret=second)

    async with gateway.stage.gateway() as other:
        await gateway.close()
        listed = await other.endpoints().ListSecrets(
            endpoint_pb.ListSecretsRequest(endpoint_id=str(hook.id))
        )

    idle, secret = listed.secrets
    # People remove the one that nobody uses any more.
    assert not idle.HasField("last_use_time")
    assert secret.hint == second.decode()[-4:]
    assert secret.last_use_time.seconds > 0
    assert secret.last_use_time.seconds % 60 == 0
    assert secret.last_use_time.nanos == 0


async def test_broken_json_is_refused_unsigned_and_ignored_signed(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    signed, bearer = await gateway.hook(), await gateway.hook(secret=None)

    refused = await gateway.post(bearer, b'{"action":', secret=None)
    ignored = await gateway.post(signed, b'{"action":', delivery="d-1")

    assert (refused.status, refused.json["error"]["reason"]) == (400, "unparsable")
    row = await gateway.row()
    assert ignored.status == 200
    assert ignored.json == {
        "status": "ignored",
        "delivery_id": str(row["id"]),
        "reason": "unparsable",
    }
    assert (row["state"], row["body"]) == ("ignored", b'{"action":')
    assert peer.admitted == []


@pytest.mark.parametrize("prefix", [b"", b"payload="], ids=["json", "form"])
async def test_a_body_that_breaks_off_deep_inside_is_broken(
    gateway: Gateway, peer: FakeAutopilot, prefix: bytes
) -> None:
    bearer, signed = await gateway.hook(secret=None), await gateway.hook()
    body = prefix + b"[" * 100_000
    kind = {"Content-Type": "application/x-www-form-urlencoded"} if prefix else {}

    refused = await gateway.post(bearer, body, kind, secret=None)
    ignored = await gateway.post(signed, body, kind)
    accepted = await gateway.post(signed, body + b"]" * 100_000, kind)

    assert (refused.status, refused.json["error"]["reason"]) == (400, "unparsable")
    assert (ignored.status, ignored.json["status"]) == (200, "ignored")
    assert ignored.json["reason"] == "unparsable"
    assert (accepted.status, accepted.json["status"]) == (200, "accepted")
    assert [row["body_bytes"] for row in await gateway.rows()] == [
        len(body),
        len(body) + 100_000,
    ]
    assert len(peer.admitted) == 1


BODIES = {
    "bom": (b'\xef\xbb\xbf{"action":"opened"}', "application/json"),
    "nul": (b'{"action":"a\\u0000b"}', "application/json"),
    "surrogate": (b'{"action":"\\ud800"}', "application/json"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "application/json"),
    "huge number": (b'{"n":' + b"9" * 50_000 + b"}", "application/json"),
    "utf-16": ('{"a":1}'.encode("utf-16"), "application/json"),
    "form": (b"payload=%7B%22action%22%3A%22opened%22%7D", "application/x-www-form-urlencoded"),
    "binary": (b"\x00\xff\xfe", "application/octet-stream"),
    "text": (b"nightly backup finished \xe2\x9c\x93\r\n", "text/plain; charset=utf-8"),
    "empty": (b"", "text/plain"),
    "duplicate keys": (b'{"action":"a","action":"b"}', "application/json"),
    "entities": (b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "application/xml"),
}


async def test_bodies_of_every_kind_are_taken_byte_for_byte(gateway: Gateway) -> None:
    hook = await gateway.hook()

    answers = {
        name: await gateway.post(hook, body, {"Content-Type": kind}, delivery=name)
        for name, (body, kind) in BODIES.items()
    }

    assert {name: answer.json["status"] for name, answer in answers.items()} == dict.fromkeys(
        BODIES, "accepted"
    )
    rows = {row["dedupe_key"]: (row["body"], row["content_type"]) for row in await gateway.rows()}
    assert rows == BODIES


async def test_a_hook_without_a_secret_goes_by_its_address(gateway: Gateway) -> None:
    hook = await gateway.hook("generic", secret=None)

    answer = await gateway.post(
        hook, b'{"event":"deploy"}', {"Idempotency-Key": "k-1"}, secret=None
    )

    row = await gateway.row()
    assert answer.json["status"] == "accepted"
    assert (row["signature_state"], row["event"], row["dedupe_key"]) == (
        "not_required",
        "deploy",
        "k-1",
    )


@pytest.mark.parametrize(
    ("outcome", "reason", "status", "state"),
    [
        (pb.ADMIT_OUTCOME_SKIPPED, reason_pb2.REASON_RUNTIME_OFFLINE, "skipped", "dispatched"),
        (pb.ADMIT_OUTCOME_IGNORED, reason_pb2.REASON_EVENT_FILTERED, "ignored", "ignored"),
        (pb.ADMIT_OUTCOME_IGNORED, reason_pb2.REASON_AUTOPILOT_PAUSED, "ignored", "ignored"),
    ],
)
async def test_what_autopilot_says_is_the_answer(
    gateway: Gateway,
    peer: FakeAutopilot,
    outcome: pb.AdmitOutcome.ValueType,
    reason: reason_pb2.Reason.ValueType,
    status: str,
    state: str,
) -> None:
    skipped = outcome == pb.ADMIT_OUTCOME_SKIPPED
    peer.admits = lambda facts: pb.AdmitResult(
        delivery_id=facts.delivery_id,
        outcome=outcome,
        reason=reason,
        run_id=run_of(facts.delivery_id) if skipped else "",
    )
    hook = await gateway.hook()

    answer = await gateway.post(hook, BODY, delivery="d-1")

    row = await gateway.row()
    name = reason_pb2.Reason.Name(reason).removeprefix("REASON_").lower()
    assert (answer.status, answer.json["status"], answer.json["reason"]) == (200, status, name)
    assert ("run_id" in answer.json) == skipped
    assert (row["state"], row["reason"]) == (state, name)
    await gateway.work()
    assert peer.bodies == []
    # An ignored delivery lets its id go, a skipped one has its run.
    again = await gateway.post(hook, BODY, delivery="d-1")
    assert again.json["status"] == ("duplicate" if skipped else "ignored")


async def test_facts_are_all_that_admission_gets(gateway: Gateway, peer: FakeAutopilot) -> None:
    hook = await gateway.hook()
    body = b'{"action":"completed","conclusion":"success","state":"open"}'

    await gateway.post(hook, body, event="check_run")

    (facts,) = peer.admitted
    assert (facts.endpoint_id, facts.workspace_id) == (str(hook.id), str(hook.workspace_id))
    assert (facts.event, list(facts.actions)) == ("check_run", ["completed", "open", "success"])
    assert (facts.body_bytes, facts.body_sha256) == (len(body), hashlib.sha256(body).digest())


async def test_without_an_answer_in_time_the_delivery_is_queued_and_judged_later(
    stage: Stage, peer: FakeAutopilot
) -> None:
    peer.may_admit.clear()
    async with stage.gateway(admission_budget=0.05) as gateway:
        hook = await gateway.hook()
        answer = await gateway.post(hook, BODY, delivery="d-1")
        queued = await gateway.row()
        peer.may_admit.set()
        # Until the late judgement is written, its transaction may hold the row, and a worker that
        # looks just then passes it over.
        await eventually(gateway.row, "the judgement", until=lambda row: row["admission"])
        gateway.database.move_clock(3)
        await gateway.work()
        done = await gateway.row()

    assert (answer.status, answer.json) == (
        202,
        {"status": "queued", "delivery_id": str(queued["id"])},
    )
    assert (queued["state"], queued["admission"], queued["response_status"]) == (
        "queued",
        None,
        202,
    )
    assert (done["state"], done["response_status"]) == ("dispatched", 202)


async def test_what_is_queued_is_answered_200_where_its_sender_takes_nothing_else(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook("slack", secret=None)
    peer.away = grpc.StatusCode.UNAVAILABLE

    answer = await gateway.post(hook, BODY, secret=None)

    assert (answer.status, answer.json["status"]) == (200, "queued")
    assert (await gateway.row())["response_status"] == 200


async def test_a_sender_in_a_hurry_is_answered_within_its_own_budget(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook("sentry")
    headers = {"Sentry-Hook-Signature": signature(SECRET, BODY).removeprefix("sha256=")}
    peer.may_admit.clear()

    # Far below what the gateway itself would wait.
    async with asyncio.timeout(5):
        answer = await gateway.post(hook, BODY, headers, secret=None)
    peer.may_admit.set()

    assert (answer.status, answer.json["status"]) == (202, "queued")


async def test_what_its_body_took_is_part_of_what_a_sender_waits(
    gateway: Gateway, peer: FakeAutopilot, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = Receive.__call__

    async def slowly(
        self: Receive, endpoint: Any, request: Any, place: Any, carrier: Any, started: float
    ) -> Answer:
        return await receive(self, endpoint, request, place, carrier, started - 60)

    monkeypatch.setattr(Receive, "__call__", slowly)
    hook = await gateway.hook()
    peer.may_admit.clear()

    async with asyncio.timeout(5):
        answer = await gateway.post(hook, BODY)
    peer.may_admit.set()

    assert (answer.status, answer.json["status"]) == (202, "queued")


async def test_what_its_own_request_is_having_judged_is_not_the_workers(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    peer.may_admit.clear()
    asking = asyncio.ensure_future(gateway.post(hook, BODY))
    await peer.asked.wait()

    await gateway.claim()
    lease = (await gateway.row())["lease_token"]
    peer.may_admit.set()

    assert lease is None
    assert (await asking).json["status"] == "accepted"
    assert len(peer.admitted) == 1


async def test_a_judgement_that_cannot_be_written_changes_nothing(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    await gateway.sql(
        "ALTER TABLE webhook.deliveries ADD CONSTRAINT unwritable CHECK (admission IS NULL)"
    )
    answer = await gateway.post(hook, BODY)
    await gateway.settled()
    await gateway.sql("ALTER TABLE webhook.deliveries DROP CONSTRAINT unwritable")
    unwritten = await gateway.row()
    gateway.database.move_clock(3)
    await gateway.work()

    assert (answer.status, answer.json["status"]) == (200, "accepted")
    assert unwritten["admission"] is None
    row = await gateway.row()
    assert (row["state"], str(row["run_id"])) == ("dispatched", answer.json["run_id"])


async def test_a_sender_does_not_wait_for_the_judgement_to_be_written(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    admin = await gateway.stage.database.admin()
    peer.may_admit.clear()
    posted = asyncio.create_task(gateway.post(hook, BODY, delivery="d-1"))
    await peer.until(lambda peer: bool(peer.admitted))
    async with admin.transaction():
        await admin.execute("LOCK TABLE webhook.deliveries IN SHARE MODE")
        peer.may_admit.set()
        answer = await posted
        unwritten = await admin.fetchval("SELECT admission FROM webhook.deliveries")
    written = await gateway.row()

    assert (answer.status, answer.json["status"]) == (200, "accepted")
    assert unwritten is None
    assert (written["admission"], str(written["run_id"])) == ("accepted", answer.json["run_id"])


async def test_of_a_flood_of_bad_requests_all_are_refused_and_a_sample_is_kept(
    stage: Stage,
) -> None:
    async with stage.gateway(rejected_rows=2) as gateway:
        hook = await gateway.hook()
        answers = [await gateway.post(hook, BODY, secret=b"another") for _ in range(5)]
        kept = await gateway.rows()

    assert [each.status for each in answers] == [401] * 5
    assert ["delivery_id" in each.json for each in answers] == [True, True, False, False, False]
    assert len(kept) == 2


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
async def test_an_autopilot_that_is_away_costs_no_delivery(
    gateway: Gateway, peer: FakeAutopilot, status: grpc.StatusCode
) -> None:
    hook = await gateway.hook()
    peer.away = status

    answer = await gateway.post(hook, BODY)
    peer.away = None
    gateway.database.move_clock(3)
    await gateway.work()

    assert (answer.status, answer.json["status"]) == (202, "queued")
    assert (await gateway.row())["state"] == "dispatched"
    assert len(peer.bodies) == 1


async def test_only_a_database_that_cannot_take_the_row_is_answered_503(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    await gateway.database.close()

    answer = await gateway.post(hook, BODY)

    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    await gateway.database.connect()
    assert (await gateway.post(hook, BODY)).status == 200


async def test_debt_stops_guessing_before_any_lookup_and_spares_other_addresses(
    stage: Stage,
) -> None:
    async with stage.gateway(credential_debt=2, trusted_proxies=("127.0.0.0/8",)) as gateway:
        hook = await gateway.hook()
        one, two = [("X-Forwarded-For", "198.51.100.1")], [("X-Forwarded-For", "198.51.100.2")]
        path = f"/hooks/{hook.token}"
        signed = [("X-Hub-Signature-256", signature(SECRET, BODY))]
        unknown = await gateway.request("POST", "/hooks/awt_nobody", BODY, one)
        bad = await gateway.request("POST", path, BODY, one)
        await gateway.database.close()
        spoofed = [("X-Forwarded-For", "203.0.113.5, 198.51.100.1")]
        stopped = await gateway.request("POST", path, BODY, [*spoofed, *signed])
        await gateway.database.connect()
        other = await gateway.request("POST", path, BODY, [*two, *signed])

    assert [unknown.status, bad.status, stopped.status, other.status] == [404, 401, 429, 200]
    assert int(stopped.headers["retry-after"]) >= 1


async def test_guessing_what_a_sender_asks_with_makes_debt_too(stage: Stage) -> None:
    async with stage.gateway(credential_debt=2) as gateway:
        hook = await gateway.hook("meta")
        path = f"/hooks/{hook.token}?hub.mode=subscribe&hub.challenge=1&hub.verify_token="
        statuses = [(await gateway.request("GET", path + guess)).status for guess in "abc"]

    assert statuses == [403, 403, 429]


async def test_valid_requests_make_no_debt_and_meet_the_ceiling_alone(stage: Stage) -> None:
    async with stage.gateway(credential_debt=1, ip_ceiling=5) as gateway:
        hook = await gateway.hook()
        statuses = [(await gateway.post(hook, BODY)).status for _ in range(5)]
        refused = await gateway.post(hook, BODY, {"X-Forwarded-For": "203.0.113.5"})

    assert statuses == [200] * 5
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1


async def test_a_rotated_token_is_gone_at_once_unless_it_has_a_grace(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    stub = gateway.endpoints()
    now = float(await gateway.sql("SELECT extract(epoch FROM clock_timestamp())"))
    new = Hook(hook.id, hook.workspace_id, "awt_the-new-one", None)
    graced = endpoint_of(new, revision=2)
    graced.previous_token_sha256 = hashlib.sha256(hook.token.encode()).digest()
    graced.previous_token_expire_time.CopyFrom(stamp(now + 60))
    await stub.PutEndpoint(endpoint_pb.PutEndpointRequest(endpoint=graced))
    both = [(await gateway.post(each, BODY, secret=None)).status for each in (hook, new)]
    gateway.database.move_clock(61)
    after = [(await gateway.post(each, BODY, secret=None)).status for each in (hook, new)]
    third = Hook(hook.id, hook.workspace_id, "awt_the-third-one", None)
    await stub.PutEndpoint(endpoint_pb.PutEndpointRequest(endpoint=endpoint_of(third, revision=3)))
    last = [(await gateway.post(each, BODY, secret=None)).status for each in (new, third)]

    assert (both, after, last) == ([200, 200], [404, 200], [404, 200])
