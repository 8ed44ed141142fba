"""Whole requests as senders send them: named, verified and answered as their sender expects."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from tests.integration.webhook.conftest import SECRET, Gateway, Response, Stage

from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_webhook.providers.table import PROVIDERS

HERE = Path(__file__).resolve()
# Other people's samples, which are not ours to keep; ours are beside the tests.
FOLDERS = (HERE.parents[2] / "data/payloads", HERE.parents[4] / "shared/cases/payloads")
NOW = 1_790_000_000


def bytes_of(case: dict[str, Any]) -> bytes:
    raw, body = case.get("raw"), case["body"]
    if raw is None:
        raw = "" if body is None else body
    if not isinstance(raw, str):
        raw = json.dumps(raw, ensure_ascii=False, separators=(",", ":"))
    return raw.encode()


def cases_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        file.name: json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))
    }


def provider_of(case: dict[str, Any]) -> str:
    return str(case["scheme"] if case["scheme"] == "gitlab_token" else case["provider"])


@pytest.mark.parametrize("folder", FOLDERS, ids=["ours", "samples"])
async def test_every_request_is_answered_and_named_as_its_sender_expects(
    stage: Stage, folder: Path
) -> None:
    cases = cases_of(folder)
    if not cases:
        pytest.skip("the samples are not here")
    wrong = {}
    async with stage.gateway(public_url="https://relay.example.com") as gateway:
        gateway.database.move_clock(NOW - (await gateway.database.now()).timestamp())
        for name, case in cases.items():
            problems = await _problems(gateway, case)
            if problems:
                wrong[name] = problems

    assert wrong == {}


@pytest.mark.parametrize(
    ("provider", "question"),
    [
        ("slack", {"type": "url_verification", "challenge": "abc"}),
        ("discord", {"type": 1}),
        ("discord", {"type": 0}),
        ("zoom", {"event": "endpoint.url_validation", "payload": {"plainToken": "abc"}}),
        ("notion", {"verification_token": "secret_1"}),
        ("aws_sns", {"Type": "SubscriptionConfirmation"}),
    ],
)
async def test_a_question_that_is_signed_by_design_is_not_answered_without_that(
    gateway: Gateway, provider: str, question: dict[str, Any]
) -> None:
    hook = await gateway.hook(provider)

    answer = await gateway.request(
        "POST",
        f"/hooks/{hook.token}",
        json.dumps(question).encode(),
        [("Content-Type", "application/json")],
    )

    assert answer.status == 401
    assert (await gateway.row())["state"] == "rejected"


async def test_a_question_is_answered_with_the_secret_that_it_was_signed_with(
    gateway: Gateway,
) -> None:
    hook = await gateway.hook("zoom")
    newer = b"the newer secret of the hook"
    await gateway.endpoints().AddSecret(
        endpoint_pb.AddSecretRequest(endpoint_id=str(hook.id), secret_id=str(uuid4()), secret=newer)
    )
    body = b'{"event":"endpoint.url_validation","payload":{"plainToken":"abc"}}'
    moment = str(int((await gateway.database.now()).timestamp()))

    answers = []
    for secret in (SECRET, newer):
        sign = hmac.digest(secret, f"v0:{moment}:".encode() + body, "sha256").hex()
        headers = [
            ("Content-Type", "application/json"),
            ("X-Zm-Request-Timestamp", moment),
            ("X-Zm-Signature", f"v0={sign}"),
        ]
        answers.append(await gateway.request("POST", f"/hooks/{hook.token}", body, headers))

    assert [answer.json["encryptedToken"] for answer in answers] == [
        hmac.digest(secret, b"abc", "sha256").hex() for secret in (SECRET, newer)
    ]


async def _problems(gateway: Gateway, case: dict[str, Any]) -> list[object]:
    """Send one request; tell what was not as expected."""
    generic = None
    if case["provider"] == "generic_hmac":
        # These senders do not name their events: their hook does.
        generic = endpoint_pb.EndpointOptions(
            generic=endpoint_pb.GenericScheme(event=case["expected_event"])
        )
    path = case.get("url", "").removeprefix("https://relay.example.com/hooks/")
    secret = case.get("secret")
    hook = await gateway.hook(
        provider_of(case),
        secret=None if secret is None else secret.encode(),
        max_body_bytes=1 << 20,
        options=generic,
        token=path,
    )
    body = bytes_of(case)
    assert hashlib.sha256(body).hexdigest() == case.get(
        "body_sha256", hashlib.sha256(body).hexdigest()
    )
    query = "?" + urlencode(case["query"]) if "query" in case else ""
    answer = await gateway.request(
        case["method"], f"/hooks/{hook.token}{query}", body, list(case["headers"].items())
    )
    rows = [row for row in await gateway.rows() if row["endpoint_id"] == hook.id]
    return [*_answer(case["expected_response"], answer), *_names(case, rows, body)]


def _answer(expected: dict[str, Any], answer: Response) -> list[object]:
    status = expected["status"]
    wanted = range(200, 300) if status == "2xx" else [status] if isinstance(status, int) else status
    found: list[object] = []
    if answer.status not in wanted:
        found.append(("status", answer.status, answer.body))
    if "json" in expected and answer.json != expected["json"]:
        found.append(("json", answer.body))
    if "body" in expected and answer.body.decode() != expected["body"]:
        found.append(("body", answer.body))
    if expected.get("body_contains", "") not in answer.body.decode():
        found.append(("body_contains", answer.body))
    return found


def _names(case: dict[str, Any], rows: list[Any], body: bytes) -> list[object]:
    if not rows:
        # A handshake, which makes no delivery.
        kinds = {each.name for each in PROVIDERS[provider_of(case)].handshakes}
        return [] if case["expected_event"] in kinds else ["no row"]
    (row,) = rows
    if row["state"] == "rejected":
        return [] if row["event"] == case["expected_event"] else [("event", row["event"])]
    found = {
        "event": row["event"],
        "action": row["action"],
        "dedupe_id": row["dedupe_key"],
        "body": row["body"],
        "signature": row["signature_state"],
    }
    expected = {
        "event": case["expected_event"],
        "action": case.get("expected_action", row["action"]),
        "dedupe_id": case.get("expected_dedupe_id", row["dedupe_key"]),
        "body": body,
        "signature": "not_required" if "secret" not in case else "valid",
    }
    return [(key, found[key], expected[key]) for key in found if found[key] != expected[key]]
