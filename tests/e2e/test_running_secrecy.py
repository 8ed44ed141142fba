"""Credentials of a hook are in no log, span, metric, answer, output or dump of the database."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.webhook.v1 import delivery_service_pb2 as webhook
from reveille_cli.stack.pginstall import wheel_binaries
from reveille_cli.stack.record import read_record
from reveille_testkit.otlp import OtlpReceiver

from .harness import RUN_ONLY, Hook, World
from .http import Answer, example_body, github_headers, signature


def shapes(credential: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a credential as it may be written down somewhere."""
    yield "plain", credential
    yield "hexadecimal", credential.hex().encode()
    # Inside a longer text, base64 shifts: three beginnings, each without its ragged ends.
    for lead in range(3):
        encoded = base64.b64encode(b"\0" * lead + credential)
        yield "base64", encoded[4 if lead else 0 :].rstrip(b"=")[:-2]


async def dump(world: World) -> bytes:
    """Return everything that the database holds, as pg_dump writes it."""
    record = read_record(world.stack.data_dir)
    assert record is not None
    assert record.database is not None
    address = record.database
    process = await asyncio.create_subprocess_exec(
        str(wheel_binaries() / "pg_dump"),
        address.url(address.user),
        env={**os.environ, "PGPASSWORD": address.password_file.read_text("utf-8").strip()},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said


async def looked_at(
    world: World, workspace_id: str, hook: Hook, answers: Sequence[Answer]
) -> dict[str, bytes]:
    """Return what every reader is shown of the hook and what came to it."""
    deliveries = world.client.deliveries
    listed = await deliveries.ListDeliveries(
        webhook.ListDeliveriesRequest(workspace_id=workspace_id)
    )
    refused = next(each for each in listed.deliveries if each.response_status == 401)
    explained = await deliveries.ExplainSignature(
        webhook.ExplainSignatureRequest(delivery_id=refused.delivery_id)
    )
    trigger = await world.client.autopilots.GetTrigger(
        autopilot.GetTriggerRequest(trigger_id=hook.trigger_id)
    )
    places = {
        "answers": b"\n".join(str(each.headers).encode() + each.body for each in answers),
        "listed deliveries": listed.SerializeToString() + str(listed).encode(),
        "explained signature": str(explained).encode(),
        "the trigger": trigger.SerializeToString(),
    }
    for words in (
        ("why", refused.delivery_id),
        ("why", hook.trigger_id),
        ("deliveries", "list", "-w", workspace_id, "-o", "json"),
        ("hooks", "explain", refused.delivery_id),
        ("triggers", "get", hook.trigger_id, "-o", "json"),
        ("triggers", "secrets", "list", hook.trigger_id, "-o", "json"),
    ):
        places[f"reveille {words[0]} {words[1]}"] = await command(world, *words)
    places["reveille why"] = places[f"reveille why {refused.delivery_id}"]
    return places


async def command(world: World, *words: str) -> bytes:
    """Return what the command prints, on both its outputs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "reveille_cli",
        *words,
        "--data-dir",
        str(world.stack.data_dir.root),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    # `hooks explain` ends with 1 where none of the usual mistakes explains a signature.
    assert process.returncode in {0, 1}, said
    return said


async def test_credentials_are_nowhere_to_be_read(world: World, otlp: OtlpReceiver) -> None:
    workspace_id = await world.create_workspace()
    agent_id = await world.create_triage_agent(workspace_id)
    rule = await world.create_autopilot(workspace_id, agent_id, RUN_ONLY)
    secret = "never-to-be-written-down-7f3a"
    hook = await world.create_hook(rule, secret=secret)
    body = example_body()
    accepted = await world.post_github(hook)
    rejected = await world.post(hook.path, body, github_headers(body, "another-secret-entirely"))
    unknown = await world.post(hook.path + "x", body, github_headers(body, secret))
    bearer = await world.post(
        hook.path, body, {**github_headers(body, secret), "Authorization": "Bearer sesame-8112"}
    )
    assert [accepted.status, rejected.status, unknown.status] == [200, 401, 404]
    assert bearer.status == 200
    rotated = await world.client.autopilots.RotateWebhookToken(
        autopilot.RotateWebhookTokenRequest(trigger_id=hook.trigger_id, request_id="rotate")
    )
    moved = Hook(hook.trigger_id, rotated.hook_path, secret)
    last = await world.post_github(moved)
    run = await world.completed(last.json["run_id"])
    await otlp.wait_for(run.trace_id, lambda trace: trace.named("autopilot.run"))
    await world.completed(accepted.json["run_id"])

    # What people see of it: lists, explanations, a feed, refusals, and the command's own output.
    seen = await looked_at(world, workspace_id, hook, [accepted, rejected, unknown, last])

    tokens = [urlsplit(path).path.rsplit("/", 1)[1] for path in (hook.path, moved.path)]
    signed = [
        signature(key, body).removeprefix("sha256=") for key in (secret, "another-secret-entirely")
    ]
    credentials = {
        "the address": tokens[0].encode(),
        "the new address": tokens[1].encode(),
        "the bytes of the address": base64.urlsafe_b64decode(tokens[0].removeprefix("awt_") + "="),
        "the signing secret": secret.encode(),
        "the signature": signed[0].encode(),
        "the bytes of the signature": bytes.fromhex(signed[0]),
        "a wrong signature": signed[1].encode(),
        "an authorization header": b"sesame-8112",
        "an operator's token": world.stack.operator_token().rsplit(".", 1)[1].encode(),
    }
    root = world.stack.data_dir
    files = [
        path
        for folder in (root.root / "logs", root.otlp)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    assert len(files) > 4
    places = {str(path.relative_to(root.root)): path.read_bytes() for path in files}
    places["OTLP"] = b"\n".join(otlp.received_bytes())
    places["pg_dump"] = await dump(world)
    places |= seen
    # The look itself works: what may be there is found.
    assert run.run_id.encode() in places["pg_dump"]
    assert bytes.fromhex(run.trace_id) in places["OTLP"]
    assert any(run.run_id.encode() in text for text in places.values())
    assert rejected.json["delivery_id"].encode() in places["reveille why"]
    assert b"SIGNATURE_STATE_INVALID" in places["explained signature"]

    found = [
        f"{what} ({shape}) in {place}"
        for what, credential in credentials.items()
        for shape, needle in shapes(credential)
        for place, text in places.items()
        if needle in text
    ]

    assert found == []
