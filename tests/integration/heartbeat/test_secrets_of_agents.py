"""What an agent answers is kept without its secrets, wherever it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest
from tests.integration.heartbeat.kit import World

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import run_pb2
from reveille_heartbeat.adapters.contract import AdapterResult, AgentContext, Reporter
from reveille_heartbeat.adapters.echo import EchoAdapter
from reveille_heartbeat.domain.answer import MAX_ERROR, MAX_SUMMARY
from reveille_heartbeat.domain.outcome import End, EndKind
from reveille_heartbeat.domain.values import LogStream
from reveille_testkit.waiting import eventually

Rows: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
# Digits, so that JSON has another form for it than a text.
KEY = "47110815471108"
# Where it is kept as it is, because agents are started with it.
KEPT_IN = {"agents"}
TELL = """
import json, os, pathlib
key, token = os.environ["API_KEY"], os.environ["REVEILLE_RUN_TOKEN"]
pathlib.Path({told!r}).write_text(token)
both = "401 for " + key + " and " + token
answer = {{
    "summary": both,
    "result": {{both: [{{"deep": both}}]}},
    "next_action": both,
    "session": {{"id": key}},
    "usage": {{"model": key}},
    {more}
}}
# Escapes hide it from whoever looks at the file's bytes.
text = json.dumps(answer).replace(key, "".join("\\\\u%04x" % ord(char) for char in key))
pathlib.Path(os.environ["REVEILLE_RESULT_FILE"]).write_text({text})
"""


async def places_of(rows: Rows, secrets: list[str]) -> set[str]:
    """Name every table that holds one of some texts, after a look at all rows of all tables."""
    names = await rows.fetch(
        "SELECT table_name FROM information_schema.tables"
        " WHERE table_schema = 'heartbeat' AND table_type = 'BASE TABLE'"
    )
    found, looked = set(), 0
    for name in (row["table_name"] for row in names):
        for row in await rows.fetch(f'SELECT * FROM heartbeat."{name}"'):
            looked += 1
            # Bytes are shown as text here, which a cast in SQL would not do.
            if any(secret in repr(tuple(row.values())) for secret in secrets):
                found.add(name)
    assert looked > 0
    return found


@pytest.mark.parametrize(
    ("more", "text", "state"),
    [
        ("", "text", run_pb2.RUN_STATE_SUCCEEDED),
        ('"error": {"class": "refusal", "message": both}', "text", run_pb2.RUN_STATE_FAILED),
        ("", "'{\"result\": ' + key + 'e999}'", run_pb2.RUN_STATE_FAILED),
    ],
    ids=["its answer", "its failure", "what is wrong with its answer"],
)
async def test_no_secret_of_an_agent_is_kept_with_what_it_answers(
    world: World, rows: Rows, tmp_path: Path, more: str, text: str, state: Any
) -> None:
    told = tmp_path / "token"
    code = TELL.format(told=str(told), more=more, text=text)
    agent = await world.script(code, config={"env": {"API_KEY": KEY}})
    made = await world.issue(agent, "manual:1")
    wakeup = await world.settled(made.wakeup.wakeup_id)

    run = await world.run(wakeup.run_id)
    assert run.state == state
    masked = f"401 for {'*' * len(KEY)} and {'*' * len(told.read_text())}"
    if text == "text":
        assert run.summary == masked
        assert f'"{masked}":[{{"deep":"{masked}"}}]' in run.result.decode()
    if more:
        assert (run.reason, run.message) == (reason_pb2.REASON_MODEL_REFUSAL, masked)

    async def over() -> run_pb2.HeartbeatRun:
        return await world.run(wakeup.run_id)

    await eventually(over, "nothing more is written", until=lambda run: not run.occupied)
    assert await places_of(rows, [KEY, told.read_text()]) == KEPT_IN


def _cut(most: int) -> str:
    """Give a text that is cut in the middle of the key."""
    return "x" * (most - len(KEY) // 2) + KEY


@pytest.mark.parametrize(
    ("result", "state"),
    [
        (
            AdapterResult(
                End(EndKind.EXITED, 0),
                {"summary": _cut(MAX_SUMMARY), KEY: KEY, "result": {KEY: [({KEY: 1}, KEY)]}},
            ),
            run_pb2.RUN_STATE_SUCCEEDED,
        ),
        (
            AdapterResult(End(EndKind.EXITED, 0), {"error": {"message": _cut(MAX_ERROR)}}),
            run_pb2.RUN_STATE_FAILED,
        ),
        (
            AdapterResult(End(EndKind.EXITED, 0), {"issue_status": "x", "summary": {KEY}}),
            run_pb2.RUN_STATE_FAILED,
        ),
        (AdapterResult(End(EndKind.EXITED, 0), None, f"no: {KEY}"), run_pb2.RUN_STATE_FAILED),
        (AdapterResult(End(EndKind.BROKEN, message=f"no: {KEY}")), run_pb2.RUN_STATE_FAILED),
    ],
    ids=["its answer", "its failure", "no answer at all", "what is wrong", "how it ended"],
)
async def test_no_adapter_has_to_think_of_its_agents_secrets(
    world: World, rows: Rows, monkeypatch: pytest.MonkeyPatch, result: AdapterResult, state: Any
) -> None:
    async def tell(self: EchoAdapter, context: AgentContext, reporter: Reporter) -> AdapterResult:
        await reporter.log(LogStream.STDOUT, 0, f"with {KEY}\n".encode())
        return result

    monkeypatch.setattr(EchoAdapter, "execute", tell)
    agent = await world.agent()
    await rows.execute(
        "UPDATE agents SET adapter_config = jsonb_build_object('env',"
        " jsonb_build_object('API_KEY', $1::text))",
        KEY,
    )
    made = await world.issue(agent, "manual:1")
    wakeup = await world.settled(made.wakeup.wakeup_id)

    assert (await world.run(wakeup.run_id)).state == state
    assert await world.log(wakeup.run_id) == f"with {'*' * len(KEY)}\n"

    async def over() -> run_pb2.HeartbeatRun:
        return await world.run(wakeup.run_id)

    await eventually(over, "nothing more is written", until=lambda run: not run.occupied)
    assert await places_of(rows, [KEY[: len(KEY) // 2]]) == KEPT_IN
