"""The commands that are more than one RPC: hooks with their secret, waiting, logs, bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.autopilot.v1 import run_pb2
from reveille.common.v1.reason_pb2 import REASON_AUTOPILOT_PAUSED, REASON_COOLDOWN
from reveille.heartbeat.v1 import run_pb2 as heartbeat
from reveille.heartbeat.v1 import wakeup_pb2
from reveille.webhook.v1 import delivery_service_pb2 as webhook
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_cli.apis import AGENT_RUNS, AUTOPILOTS, DELIVERIES, WAKEUPS
from reveille_cli.stack.datadir import DataDir, write_json
from reveille_runtime.errors import NotFound, Unavailable

from .conftest import Answer, Desk

SECRET = "a secret of some length"
AUTOPILOT = "0197f3a0-0000-7000-8000-000000000001"
CREATE = ("triggers", "create-webhook", AUTOPILOT, "--provider", "github")


def created(**fields: Any) -> Answer:
    reply = autopilot.CreateTriggerResponse(hook_path="/hooks/awt_x", endpoint_ready=True, **fields)
    reply.trigger.trigger_id = "t1"
    return Answer(AUTOPILOTS, "CreateTrigger", reply)


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    return str(file)


def test_the_secret_is_there_before_the_address(desk: Desk, secret_file: str) -> None:
    added = Answer(AUTOPILOTS, "AddSigningSecret", autopilot.AddSigningSecretResponse())
    answers = [created(hook_url="http://gateway/hooks/awt_x"), added]

    outcome = desk.run(*CREATE, "--signing-secret-file", secret_file, answers=answers)

    assert outcome.exit_code == 0
    assert outcome.requests[1].trigger_id == "t1"
    assert outcome.requests[1].secret == SECRET.encode()
    assert "http://gateway/hooks/awt_x" in outcome.out
    assert SECRET not in outcome.out + outcome.err
    assert outcome.err == "The hook's address is a credential, and it is shown only now.\n"


def test_the_secret_of_a_variable(desk: Desk) -> None:
    desk.environment["HUB_SECRET"] = SECRET
    added = Answer(AUTOPILOTS, "AddSigningSecret", autopilot.AddSigningSecretResponse())

    outcome = desk.run(*CREATE, "--signing-secret-env", "HUB_SECRET", answers=[created(), added])

    assert outcome.requests[1].secret == SECRET.encode()


def test_a_trigger_without_its_secret_is_undone(desk: Desk, secret_file: str) -> None:
    answers = [
        created(),
        Answer(AUTOPILOTS, "AddSigningSecret", Unavailable("DEPENDENCY_UNAVAILABLE")),
        Answer(AUTOPILOTS, "DeleteTrigger", autopilot.DeleteTriggerResponse()),
    ]

    outcome = desk.run(*CREATE, "--signing-secret-file", secret_file, "-o", "json", answers=answers)

    assert outcome.exit_code == 6
    assert outcome.requests[2].trigger_id == "t1"
    assert outcome.json["error"]["reason"] == "dependency_unavailable"
    assert outcome.json["error"]["hint"].endswith("the trigger was deleted again")
    assert "awt_x" not in outcome.out


def test_a_trigger_that_cannot_be_undone_is_named(desk: Desk, secret_file: str) -> None:
    away = Unavailable("DEPENDENCY_UNAVAILABLE")
    answers = [
        created(),
        Answer(AUTOPILOTS, "AddSigningSecret", away),
        Answer(AUTOPILOTS, "DeleteTrigger", away),
    ]

    outcome = desk.run(*CREATE, "--signing-secret-file", secret_file, answers=answers)

    assert outcome.exit_code == 6
    assert "`reveille triggers delete t1`" in outcome.err


def test_an_address_of_this_machine(desk: Desk) -> None:
    place = DataDir.at(desk.data_dir)
    place.root.mkdir()
    gateway = [{"grpc": "127.0.0.1:1", "http": "127.0.0.1:8080"}]
    write_json(place.endpoints, {"services": {"webhook-gateway": gateway}})

    outcome = desk.run(*CREATE, "-o", "json", answers=[created()])

    assert outcome.json["hook_url"] == "http://127.0.0.1:8080/hooks/awt_x"
    assert outcome.json["trigger"]["trigger_id"] == "t1"


def test_an_endpoint_that_is_not_confirmed_is_mentioned(desk: Desk) -> None:
    answer = created()
    assert isinstance(answer.reply, autopilot.CreateTriggerResponse)
    answer.reply.endpoint_ready = False

    outcome = desk.run(*CREATE, answers=[answer])

    assert "has not confirmed it yet" in outcome.err


def test_a_secret_comes_from_one_place(desk: Desk, secret_file: str) -> None:
    both = ("--signing-secret-file", secret_file, "--signing-secret-env", "HOME")

    assert desk.run(*CREATE, *both).exit_code == 2
    assert desk.run("triggers", "secrets", "add", "t1", *both).exit_code == 2


def test_a_secret_comes_from_some_place(desk: Desk) -> None:
    outcome = desk.run("triggers", "secrets", "add", "t1")

    assert outcome.exit_code == 2
    assert "give --signing-secret-file or --signing-secret-env" in outcome.err


def test_adding_a_secret(desk: Desk, secret_file: str) -> None:
    reply = autopilot.AddSigningSecretResponse()
    reply.signing_secret.hint = "ngth"
    line = ("triggers", "secrets", "add", "t1", "--expires", "2026-12-01T00:00:00+01:00")
    answers = [Answer(AUTOPILOTS, "AddSigningSecret", reply)]

    outcome = desk.run(*line, "--signing-secret-file", secret_file, "-o", "json", answers=answers)

    assert outcome.request.secret == SECRET.encode()
    assert outcome.request.expire_time.ToJsonString() == "2026-11-30T23:00:00Z"
    assert outcome.json["hint"] == "ngth"


@pytest.mark.parametrize(
    ("left", "warned"),
    [
        (autopilot.ListSigningSecretsResponse(), "takes requests without a signature"),
        (
            autopilot.ListSigningSecretsResponse(
                signing_secrets=[autopilot.SigningSecret(secret_id="s2")]
            ),
            "",
        ),
        (Unavailable("DEPENDENCY_UNAVAILABLE", "the gateway is away"), "could not be told"),
    ],
)
def test_removing_a_secret_warns_of_a_hook_without_any(
    desk: Desk, left: autopilot.ListSigningSecretsResponse | Unavailable, warned: str
) -> None:
    answers = [
        Answer(AUTOPILOTS, "RemoveSigningSecret", autopilot.RemoveSigningSecretResponse()),
        Answer(AUTOPILOTS, "ListSigningSecrets", left),
    ]

    outcome = desk.run("triggers", "secrets", "remove", "t1", "s1", answers=answers)

    first, _, rest = outcome.err.partition("\n")
    assert (outcome.exit_code, outcome.out, first) == (0, "", "Removed.")
    assert warned in rest
    assert bool(rest) == bool(warned)
    assert outcome.requests[1].trigger_id == "t1"


def ended(state: run_pb2.RunState.ValueType) -> Answer:
    reply = autopilot.WaitRunResponse(run=run_pb2.AutopilotRun(run_id="r1", state=state))
    return Answer(AUTOPILOTS, "WaitRun", reply)


@pytest.mark.parametrize(
    ("state", "exit_code"),
    [
        (run_pb2.RUN_STATE_COMPLETED, 0),
        (run_pb2.RUN_STATE_FAILED, 1),
        (run_pb2.RUN_STATE_SKIPPED, 1),
        (run_pb2.RUN_STATE_CANCELLED, 1),
    ],
)
def test_waiting_for_a_run(desk: Desk, state: run_pb2.RunState.ValueType, exit_code: int) -> None:
    answers = [ended(run_pb2.RUN_STATE_RUNNING), ended(state)]

    outcome = desk.run("runs", "wait", "r1", "--timeout", "10m", "-o", "json", answers=answers)

    assert outcome.exit_code == exit_code
    assert outcome.json["run_id"] == "r1"
    assert outcome.requests[0].timeout.ToMilliseconds() == 60_000


def test_waiting_asks_for_what_is_left(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reveille_cli.nouns.runs.monotonic", desk.clock.time)
    running = desk.start("runs", "wait", "r1", "--timeout", "90s", "-o", "json")
    asked = []
    for state in (run_pb2.RUN_STATE_RUNNING, run_pb2.RUN_STATE_RUNNING):
        _, request, call = desk.take(running, AUTOPILOTS, "WaitRun")
        asked.append(request.timeout.ToSeconds())
        desk.clock.sleep_for(asked[-1])
        call.send_initial_metadata(())
        call.terminate(ended(state).reply, (), grpc.StatusCode.OK, "")

    assert running.result(timeout=30).exit_code == 6
    assert asked == [60, 30]


def test_waiting_ends_with_its_time(desk: Desk) -> None:
    answers = [ended(run_pb2.RUN_STATE_RUNNING)]

    outcome = desk.run("runs", "wait", "r1", "--timeout", "0", answers=answers)

    assert outcome.exit_code == 6
    assert outcome.err == "It has no outcome after 0.\n"


def log(chunk: bytes, offset: int, *, complete: bool = False) -> Answer:
    reply = heartbeat.ReadRunLogResponse(chunk=chunk, next_offset=offset, complete=complete)
    return Answer(AGENT_RUNS, "ReadRunLog", reply)


def test_logs_are_read_to_their_end(desk: Desk) -> None:
    answers = [log(b"one\n", 4), log(b"two\n", 8, complete=True)]

    outcome = desk.run("agent-runs", "logs", "r1", answers=answers)

    assert outcome.out == "one\ntwo\n"
    assert [each.offset for each in outcome.requests] == [0, 4]
    assert outcome.requests[0].stream == heartbeat.LOG_STREAM_STDOUT


def test_logs_so_far(desk: Desk) -> None:
    line = ("agent-runs", "logs", "r1", "--stream", "stderr", "-o", "json")

    outcome = desk.run(*line, answers=[log(b"so far", 6), log(b"", 6)])

    assert outcome.json == {"run_id": "r1", "stream": "stderr", "text": "so far"}
    assert outcome.requests[0].stream == heartbeat.LOG_STREAM_STDERR


def test_following_a_log(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reveille_cli.nouns.agent_runs.POLL", 0.0)
    answers = [log(b"", 0), log(b"late\n", 5, complete=True)]

    assert desk.run("agent-runs", "logs", "r1", "--follow", answers=answers).out == "late\n"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ([b'{"a"', b":1}"], {"body_text": '{"a":1}', "body_bytes": 7}),
        ([b"\xff\x00"], {"body_base64": "/wA=", "body_bytes": 2}),
        ([], {"body_text": "", "body_bytes": 0}),
    ],
)
def test_the_body_of_a_delivery(desk: Desk, body: list[bytes], shown: dict[str, object]) -> None:
    pieces = [webhook.GetDeliveryBodyResponse(chunk=each) for each in body]
    answers = [Answer(DELIVERIES, "GetDeliveryBody", pieces)]

    as_json = desk.run("deliveries", "body", "d1", "-o", "json", answers=answers)

    assert as_json.json == {"delivery_id": "d1", **shown}


def test_a_body_goes_out_byte_for_byte(desk: Desk) -> None:
    pieces = [webhook.GetDeliveryBodyResponse(chunk=each) for each in (b"a\r\n", b"b")]

    outcome = desk.run(
        "deliveries", "body", "d1", answers=[Answer(DELIVERIES, "GetDeliveryBody", pieces)]
    )

    assert outcome.raw == b"a\r\nb"


def test_a_log_that_is_not_there(desk: Desk) -> None:
    answers = [Answer(AGENT_RUNS, "ReadRunLog", NotFound("NOT_FOUND"))]

    assert desk.run("agent-runs", "logs", "r1", answers=answers).exit_code == 3


@pytest.mark.parametrize("size", [15, 1025])
def test_a_secret_of_no_good_length_makes_no_trigger(desk: Desk, size: int) -> None:
    desk.environment["HUB_SECRET"] = "x" * size

    outcome = desk.run(*CREATE, "--signing-secret-env", "HUB_SECRET", "-o", "json")

    assert outcome.exit_code == 2
    assert outcome.json["error"]["field"] == "signing_secret"
    assert f"has {size}" in outcome.json["error"]["message"]


def test_the_options_of_a_hook_are_written_as_they_are_shown(desk: Desk) -> None:
    written = '{"content_policy": "refuse", "lanePath": "a.b", "generic": {"header": "x"}}'
    spelled = '{"content_policy": "CONTENT_POLICY_FLAG"}'
    made = desk.run(*CREATE, "--options", written, answers=[created()])
    other = desk.run(*CREATE, "--options", spelled, answers=[created()])

    options = made.requests[0].webhook.options
    assert options.content_policy == endpoint_pb.CONTENT_POLICY_REFUSE
    assert (options.lane_path, options.generic.header) == ("a.b", "x")
    flagged = other.requests[0].webhook.options.content_policy
    assert flagged == endpoint_pb.CONTENT_POLICY_FLAG
    for wrong in ('"refused"', "7", '["refuse"]'):
        outcome = desk.run(*CREATE, "--options", f'{{"content_policy": {wrong}}}', "-o", "json")
        assert outcome.exit_code == 2
        assert outcome.json["error"]["field"] == "options.content_policy"
        assert outcome.json["error"]["message"].endswith("is none of flag, refuse")


def test_a_new_hook_is_shown_flat(desk: Desk) -> None:
    outcome = desk.run(*CREATE, answers=[created(hook_url="http://gateway/hooks/awt_x")])

    names = [line.split()[0] for line in outcome.out.splitlines()]
    assert {"trigger_id", "hook_url"} <= set(names)
    assert not any(name.startswith("trigger.") for name in names)


@pytest.mark.parametrize(
    ("state", "exit_code", "said"),
    [
        (run_pb2.RUN_STATE_PENDING, 0, ""),
        (run_pb2.RUN_STATE_SKIPPED, 5, "skipped: it is paused (autopilot_paused)\n"),
        (run_pb2.RUN_STATE_FAILED, 1, "failed: it is paused (autopilot_paused)\n"),
    ],
)
def test_running_an_autopilot(
    desk: Desk, state: run_pb2.RunState.ValueType, exit_code: int, said: str
) -> None:
    run = run_pb2.AutopilotRun(run_id="r1", state=state)
    if said:
        run.message, run.reason = "it is paused", REASON_AUTOPILOT_PAUSED
    answers = [Answer(AUTOPILOTS, "RunAutopilot", autopilot.RunAutopilotResponse(run=run))]

    as_table = desk.run("autopilots", "run", AUTOPILOT, answers=answers)
    as_json = desk.run("autopilots", "run", AUTOPILOT, "-o", "json", answers=answers)

    assert (as_table.exit_code, as_table.err) == (exit_code, said)
    assert "r1" in as_table.out
    assert (as_json.exit_code, as_json.err, as_json.json["run_id"]) == (exit_code, "", "r1")


@pytest.mark.parametrize("words", [("{}",), ("x", "--content-type", "text/plain"), ("",)])
def test_a_payload_that_is_what_it_says(desk: Desk, words: tuple[str, ...]) -> None:
    answers = [Answer(AUTOPILOTS, "RunAutopilot", autopilot.RunAutopilotResponse())]

    outcome = desk.run("autopilots", "run", AUTOPILOT, "--payload", *words, answers=answers)

    assert outcome.exit_code == 0
    assert outcome.request.payload == words[0].encode()


WAKE = ("wakeups", "create", "Look", "-w", AUTOPILOT, "--agent", AUTOPILOT)


def woken(**fields: Any) -> Answer:
    result = wakeup_pb2.WakeupResult(wakeup_id="w1", **fields)
    return Answer(WAKEUPS, "EnqueueWakeups", wakeup_pb2.EnqueueWakeupsResponse(results=[result]))


def test_a_wake_by_hand_says_what_is_asked(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "prompt").write_text("Please look.", encoding="utf-8")
    more = ("--prompt-file", str(tmp_path / "prompt"), "--issue", "ABC-1", "--task-key", "nightly")
    keyed = ("--fresh-session", "--idempotency-key", "k1")
    answer = woken(state=wakeup_pb2.WAKEUP_STATE_QUEUED)

    outcome = desk.run(*WAKE, *more, *keyed, answers=[answer])

    assert outcome.exit_code == 0
    assert list(outcome.request.wakeups) == [
        wakeup_pb2.Wakeup(
            workspace_id=AUTOPILOT,
            agent_id=AUTOPILOT,
            source=wakeup_pb2.WAKEUP_SOURCE_ON_DEMAND,
            reason="on_demand",
            title="Look",
            prompt="Please look.",
            issue_id="ABC-1",
            task_key="nightly",
            fresh_session=True,
            idempotency_key="k1",
        )
    ]
    assert "w1" in outcome.out


def test_a_wake_that_a_rule_refuses_is_no_success(desk: Desk) -> None:
    answer = woken(
        state=wakeup_pb2.WAKEUP_STATE_SKIPPED, reason=REASON_COOLDOWN, message="it rests"
    )

    outcome = desk.run(*WAKE, answers=[answer])

    assert outcome.exit_code == 5
    assert outcome.err == "skipped: it rests (cooldown)\n"


@pytest.mark.parametrize(
    ("more", "field"),
    [(("--squad", AUTOPILOT), "agent"), (("--prompt", "a", "--prompt-file", "-"), "prompt")],
)
def test_a_wake_says_one_thing_at_a_time(desk: Desk, more: tuple[str, ...], field: str) -> None:
    outcome = desk.run(*WAKE, *more)

    assert outcome.exit_code == 2
    assert field in outcome.err


def test_a_hook_without_a_secret_says_what_it_takes(desk: Desk) -> None:
    outcome = desk.run(*CREATE, answers=[created(hook_url="http://gateway/hooks/awt_x")])

    assert outcome.err.splitlines()[1].startswith("Without a signing secret it takes what is not")
