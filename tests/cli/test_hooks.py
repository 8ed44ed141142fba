"""`reveille hooks` and what people do with deliveries: sign, send, listen, explain, replay."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_cli.apis import DELIVERIES, ENDPOINTS

from .conftest import Answer, Desk

SECRET = b"a secret of some length"
BODY = b'{"a":1}'
WORKSPACE = "0197f3a0-0000-7000-8000-00000000000a"
TRIGGER = "0197f3a0-0000-7000-8000-00000000000b"


def row(name: str, header: str, **fields: str) -> Answer:
    scheme = endpoint_pb.SignatureScheme(
        **{"algorithm": "hmac_sha256", "encoding": "hex", "message": "{body}", **fields}
    )
    return Answer(
        ENDPOINTS,
        "ListProviders",
        endpoint_pb.ListProvidersResponse(
            providers=[
                endpoint_pb.Provider(name="adyen"),
                endpoint_pb.Provider(name=name, signature_header=header, scheme=scheme),
            ]
        ),
    )


def hexed(message: bytes, key: bytes = SECRET) -> str:
    return hmac.new(key, message, hashlib.sha256).hexdigest()


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    (tmp_path / "body").write_bytes(BODY)
    return (
        "--body-file",
        str(tmp_path / "body"),
        "--signing-secret-file",
        str(tmp_path / "secret"),
    )


@pytest.mark.parametrize(
    ("answer", "headers"),
    [
        (
            row("p", "x-hub-signature-256", prefix="sha256="),
            {"x-hub-signature-256": "sha256=" + hexed(BODY)},
        ),
        (
            row(
                "p",
                "stripe-signature",
                prefix="v1=",
                message="{timestamp}.{body}",
                timestamp_prefix="t=",
                timestamp_unit="seconds",
                separator=",",
            ),
            {"stripe-signature": "t=1790000000,v1=" + hexed(b"1790000000." + BODY)},
        ),
        (
            row(
                "p",
                "webhook-signature",
                prefix="v1,",
                message="{id}.{timestamp}.{body}",
                encoding="base64",
                timestamp_header="webhook-timestamp",
                timestamp_unit="milliseconds",
                id_header="webhook-id",
            ),
            {
                "webhook-signature": "v1,"
                + base64.b64encode(
                    hmac.digest(SECRET, b"m-1.1790000000000." + BODY, "sha256")
                ).decode(),
                "webhook-timestamp": "1790000000000",
                "webhook-id": "m-1",
            },
        ),
        (
            row(
                "p",
                "x-sign",
                message="{timestamp}{body}",
                timestamp_header="x-time",
                timestamp_unit="iso",
            ),
            {"x-sign": hexed(b"2026-09-21T14:13:20Z" + BODY), "x-time": "2026-09-21T14:13:20Z"},
        ),
        (row("p", "x-token", algorithm="equals"), {"x-token": SECRET.decode()}),
    ],
)
def test_a_body_is_signed_as_its_sender_signs(
    desk: Desk, words: tuple[str, ...], answer: Answer, headers: dict[str, str]
) -> None:
    outcome = desk.run(
        *("hooks", "sign", "p", *words, "--at", "2026-09-21T14:13:20Z", "--id", "m-1"),
        *("-o", "json"),
        answers=[answer],
    )

    assert outcome.json == {"headers": headers}


@pytest.mark.parametrize(
    ("answer", "provider", "field"),
    [
        (row("p", "x"), "unheard", "provider"),
        (row("p", "x"), "adyen", "provider"),
        (row("p", "x", algorithm="ed25519"), "p", "provider"),
        (row("p", "x", message="{url}{body}"), "p", "url"),
        (row("p", "x", key="whsec"), "p", "signing_secret"),
    ],
)
def test_what_cannot_be_signed_is_said(
    desk: Desk, words: tuple[str, ...], answer: Answer, provider: str, field: str
) -> None:
    outcome = desk.run("hooks", "sign", provider, *words, "-o", "json", answers=[answer])

    assert outcome.exit_code == 2
    assert outcome.json["error"]["field"] == field


class Server(HTTPServer):
    """Remembers what was posted to it."""

    posted: list[tuple[dict[str, str], bytes]]
    status = 200


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        return


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.posted = []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def url_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}/hooks/awt_x"


def test_a_body_is_sent_as_its_sender_sends(
    desk: Desk, words: tuple[str, ...], server: Server
) -> None:
    send = (
        "hooks",
        "send",
        "github",
        "--url",
        url_of(server),
        *words,
        "-H",
        "X-GitHub-Event: push",
    )
    answer = row("github", "x-hub-signature-256", prefix="sha256=")

    taken = desk.run(*send, answers=[answer])
    server.status = 401
    refused = desk.run(*send, answers=[answer])

    headers, body = server.posted[0]
    assert (taken.exit_code, taken.out) == (0, "200 {}\n")
    assert refused.exit_code == 1
    assert body == BODY
    assert headers["x-hub-signature-256"] == "sha256=" + hexed(BODY)
    assert (headers["x-github-event"], headers["content-type"]) == ("push", "application/json")


def test_nobody_who_answers_is_unavailable(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(BODY)

    outcome = desk.run(
        *("hooks", "send", "github", "--url", "http://127.0.0.1:1/hooks/awt_x"),
        *("--body-file", str(tmp_path / "body"), "-o", "json"),
    )

    assert outcome.exit_code == 6
    assert "awt_x" not in outcome.out


def news(number: int, state: pb.DeliveryState.ValueType) -> pb.WatchDeliveriesResponse:
    return pb.WatchDeliveriesResponse(
        delivery=pb.Delivery(
            delivery_id=f"d-{number}",
            event="push",
            state=state,
            content_type="application/json",
            headers={"x-github-event": "push", "x-hub-signature-256-present": "true"},
        )
    )


def test_listening_passes_bodies_on_but_for_what_was_rejected(desk: Desk, server: Server) -> None:
    watching = Answer(
        DELIVERIES,
        "WatchDeliveries",
        [
            news(1, pb.DELIVERY_STATE_QUEUED),
            news(1, pb.DELIVERY_STATE_DISPATCHED),
            news(2, pb.DELIVERY_STATE_REJECTED),
        ],
    )
    body = Answer(DELIVERIES, "GetDeliveryBody", [pb.GetDeliveryBodyResponse(chunk=BODY)])

    outcome = desk.run(
        *("hooks", "listen", "-w", WORKSPACE, "--forward-to", url_of(server)),
        answers=[watching, body],
    )

    assert [posted[1] for posted in server.posted] == [BODY]
    assert server.posted[0][0]["x-github-event"] == "push"
    assert "x-hub-signature-256-present" not in server.posted[0][0]
    assert outcome.out == "d-1  push  queued  -> 200\nd-2  push  rejected\n"


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


def test_deliveries_are_searched_replayed_released_purged_and_watched(desk: Desk) -> None:
    listed = Answer(DELIVERIES, "ListDeliveries", pb.ListDeliveriesResponse())
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
        answers=[Answer(DELIVERIES, "WatchDeliveries", [news(1, pb.DELIVERY_STATE_DISPATCHED)])],
    )

    assert (search.request.event, search.request.dedupe_id) == ("push", "d-1")
    assert search.request.body_sha256.hex() == digest
    assert search.request.start_time.seconds == 1_790_000_000
    assert (replay.request.request_id, replay.json["delivery_id"]) == ("once", "new")
    assert (release.json["deliveries"], purge.json["deliveries"]) == (3, 2)
    assert watched.out == "d-1  push  dispatched\n"
    assert desk.run("deliveries", "list", "-w", WORKSPACE, "--hash", "xyz").exit_code == 2
