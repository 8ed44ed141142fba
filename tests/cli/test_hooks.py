"""`reveille hooks`: sign and send as a sender does, and listen."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from reveille.autopilot.v1 import autopilot_pb2
from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille.webhook.v1.endpoint_service_pb2 import NamePlace as Place
from reveille_cli.apis import AUTOPILOTS, DELIVERIES, ENDPOINTS

from .conftest import Answer, Desk, Outcome

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
                endpoint_pb.Provider(
                    name="adyen",
                    event_places=[Place(body_path="code"), Place()],
                    dedupe_places=[Place(body_hash=True)],
                ),
                endpoint_pb.Provider(
                    name=name,
                    signature_header=header,
                    scheme=scheme,
                    event_places=[Place(header="x-event"), Place(body_path="type")],
                    dedupe_places=[Place(header="x-delivery")],
                ),
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
        *("hooks", "sign", "p", *words, "--at", "2026-09-21T14:13:20Z"),
        *("--event", "push", "--id", "m-1", "-o", "json"),
        answers=[answer],
    )

    assert outcome.json == {"headers": {"x-event": "push", "x-delivery": "m-1", **headers}}


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


def test_an_id_that_is_left_out_is_made_only_where_it_is_signed(
    desk: Desk, words: tuple[str, ...]
) -> None:
    sign = ("hooks", "sign", "p", *words, "-o", "json")

    plain = desk.run(*sign, answers=[row("p", "x")])
    signed = desk.run(*sign, answers=[row("p", "x", message="{id}{body}", id_header="x-id")])

    assert list(plain.json["headers"]) == ["x"]
    assert list(signed.json["headers"]) == ["x", "x-id"]
    assert signed.json["headers"]["x"] == hexed(signed.json["headers"]["x-id"].encode() + BODY)


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


def test_event_and_id_are_sent_in_the_headers_of_the_sender(
    desk: Desk, words: tuple[str, ...], server: Server
) -> None:
    send = ("hooks", "send", "p", "--url", url_of(server), "--event", "push", "--id", "d-1")

    for given in (words, words[:2]):
        assert desk.run(*send, *given, answers=[row("p", "x-sign")]).exit_code == 0

    assert {(each["x-event"], each["x-delivery"]) for each, _ in server.posted} == {("push", "d-1")}
    assert ["x-sign" in each for each, _ in server.posted] == [True, False]


@pytest.mark.parametrize(
    ("provider", "options", "field", "said"),
    [
        ("adyen", ("--event", "e"), "event", "takes it from body.code, else several parts"),
        ("adyen", ("--id", "d-1"), "id", "adyen takes it from the hash of the body"),
        ("bare", ("--id", "d-1"), "id", "bare gives none"),
        ("p", ("--event", "push\nx: y"), "event", "printable ASCII"),
        ("p", ("--event", "push", "-H", "X-Event: issues"), "header", "X-Event"),
        ("p", ("-H", "X-Sign: mine"), "header", "X-Sign"),
    ],
)
def test_what_would_be_dropped_or_sent_twice_is_refused(
    desk: Desk,
    words: tuple[str, ...],
    server: Server,
    provider: str,
    options: tuple[str, ...],
    field: str,
    said: str,
) -> None:
    answer = row("p", "x-sign")
    assert isinstance(answer.reply, endpoint_pb.ListProvidersResponse)
    answer.reply.providers.add(name="bare")

    outcome = desk.run(
        *("hooks", "send", provider, "--url", url_of(server), *words, *options, "-o", "json"),
        answers=[answer],
    )

    assert outcome.exit_code == 2
    assert outcome.json["error"]["field"] == field
    assert said in outcome.json["error"]["message"]
    assert server.posted == []


def test_a_trigger_says_how_its_sender_signs(desk: Desk, words: tuple[str, ...]) -> None:
    generic = endpoint_pb.GenericScheme(header="X-Acme", prefix="v1=", algorithm="sha512")
    webhook = autopilot_pb2.WebhookTrigger(
        provider="generic_hmac", options=endpoint_pb.EndpointOptions(generic=generic)
    )
    trigger = autopilot.GetTriggerResponse(trigger=autopilot_pb2.Trigger(webhook=webhook))
    found = Answer(AUTOPILOTS, "GetTrigger", trigger)

    def sign(provider: str, *answers: Answer) -> Outcome:
        return desk.run(
            *("hooks", "sign", provider, *words, "--trigger", TRIGGER, "-o", "json"),
            answers=[found, *answers],
        )

    as_told = {"algorithm": "hmac_sha512", "prefix": "v1="}
    told = sign("generic_hmac", row("generic_hmac", "x-acme", **as_told))
    other = sign("github")

    assert told.requests == [
        autopilot.GetTriggerRequest(trigger_id=TRIGGER),
        endpoint_pb.ListProvidersRequest(generic=generic),
    ]
    assert told.json["headers"] == {"x-acme": "v1=" + hmac.new(SECRET, BODY, "sha512").hexdigest()}
    assert (other.exit_code, other.json["error"]["field"]) == (2, "trigger")


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
