"""No credential is anywhere it need not be: logs, spans, rows, errors."""

from __future__ import annotations

import base64
import json
import logging

import pytest
from tests.integration.webhook.conftest import SECRET, Gateway, Stage, signature
from tests.integration.webhook.peer import FakeAutopilot

BODY = b'{"action":"opened"}'
BEARER = "Bearer dGhlLXNlbmRlcidzLW93bg"
COOKIE = "session=very-private"


async def test_tokens_signatures_and_secrets_leave_no_trace(
    stage: Stage,
    peer: FakeAutopilot,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    sign = signature(SECRET, BODY)
    bad = signature(b"not the secret", BODY)
    answers = []
    async with stage.gateway() as gateway:
        hook = await gateway.hook()
        private = {"Authorization": BEARER, "Cookie": COOKIE, "Referer": f"/hooks/{hook.token}"}
        answers.append(await gateway.post(hook, BODY, private, delivery="d-1"))
        answers.append(await gateway.post(hook, BODY, private, delivery="d-1"))
        answers.append(
            await gateway.post(hook, BODY, {**private, "X-Hub-Signature-256": bad}, secret=None)
        )
        answers.append(await gateway.request("GET", f"/hooks/{hook.token}"))
        answers.append(await gateway.request("POST", f"/hooks/{hook.token}/", BODY))
        answers.append(await gateway.raw(f"POST /hooks/{hook.token} HTTP/1.1\r\n\r\n".encode()))
        await gateway.database.close()
        answers.append(await gateway.post(hook, BODY))
        await gateway.database.connect()
        await gateway.work()
        dump = await dumped(gateway)
        spans = "\n".join(span.to_json() for span in gateway.spans.ended)
    logs = capsys.readouterr()

    assert [answer.status for answer in answers] == [200, 200, 401, 405, 404, 400, 503]
    heap = "\n".join(
        [
            dump,
            spans,
            caplog.text,
            logs.out,
            logs.err,
            *(str(answer) for answer in answers),
            *(str(each) for each in (*peer.admitted, *peer.bodies)),
        ]
    )
    # The search itself works.
    assert "hook.answered" in heap
    assert "issues" in heap
    assert "POST /hooks/{token}" in heap
    kept = [
        secret
        for each in (hook.token, sign, bad, BEARER, COOKIE, SECRET.decode())
        for secret in shapes(each)
        if secret in heap
    ]
    assert kept == []


async def dumped(gateway: Gateway) -> str:
    """Write out every row of the schema, bytes as hex."""
    tables = ("endpoints", "endpoint_secrets", "deliveries")
    parts = [
        await gateway.sql(f"SELECT json_agg(t)::text FROM webhook.{table} AS t") for table in tables
    ]
    assert all(json.loads(part) for part in parts)
    return "\n".join(parts)


def shapes(secret: str) -> set[str]:
    """Give the ways a text may hide."""
    value = secret.removeprefix("sha256=")
    raw = value.encode()
    return {
        value,
        raw.hex(),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    }
