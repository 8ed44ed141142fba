"""What the demo promises: a good story keeps every promise, and each fault breaks its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reveille.autopilot.v1 import autopilot_pb2 as rule
from reveille.autopilot.v1 import run_pb2 as autopilot
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import issue_pb2, run_pb2
from reveille.scheduler.v1 import execution_pb2
from reveille.webhook.v1 import delivery_service_pb2 as webhook
from reveille_cli.apis import Service
from reveille_cli.demo import github
from reveille_cli.demo.checks import check_story
from reveille_cli.demo.report import document, report_checks, report_story
from reveille_cli.demo.stage import Stage
from reveille_cli.demo.story import Posts, RunStory, Story
from reveille_cli.demo.traced import check_traces, is_whole
from reveille_cli.findings import Explanation, Found
from reveille_cli.options import OutputFormat
from reveille_cli.printer import Printer
from reveille_cli.spans import Span, Trace, tree

EXAMPLE = Path(__file__).parents[3] / "examples" / "github" / "issues_opened.json"
TRACE = "0af7651916cd43dd8448eb211c80319c"
AGENT_SPAN = "00f067aa0ba902b7"
SUBJECT = "lighthouse-crew/beacon#42 “The beacon skips a turn”"


def stage() -> Stage:
    return Stage(
        workspace_id="workspace",
        triage_id="triage-id",
        echo_id="echo-id",
        on_issue=rule.Autopilot(autopilot_id="on-issue", title="Triage", rule_version_id="v-issue"),
        each_minute=rule.Autopilot(autopilot_id="minute", title="Round", rule_version_id="v-min"),
        by_hand=rule.Autopilot(
            autopilot_id="hand", title="Note", rule_version_id="v-hand", creator_user_id="local"
        ),
        webhook=rule.Trigger(trigger_id="hook", publisher_user_id="maya"),
        hook_url="http://127.0.0.1:1/hooks/awt_abcdefghijklmnop",
        secret=b"not much of a secret",
        schedule=rule.Trigger(trigger_id="cron", publisher_user_id="local"),
    )


def answer(code: int, **fields: Any) -> github.HookAnswer:
    return github.HookAnswer(code, fields, 0.01)


def good_story() -> Story:
    request = github.issues_opened(EXAMPLE, stage().secret)
    return Story(
        stage=stage(),
        posts=Posts(
            request=request,
            first=answer(200, status="accepted", delivery_id="delivery", run_id="run-hook"),
            again=answer(200, status="duplicate", delivery_id="delivery", run_id="run-hook"),
            forged=answer(401, status="rejected", delivery_id="forged"),
        ),
        delivery=webhook.Delivery(
            delivery_id="delivery",
            state=webhook.DELIVERY_STATE_DISPATCHED,
            event="issues",
            action="opened",
            dedupe_id=request.delivery,
            signature_state=webhook.SIGNATURE_STATE_VALID,
            attempt_count=2,
            body_bytes=len(request.body),
            run_id="run-hook",
            trace_id=TRACE,
        ),
        rejected=webhook.Delivery(
            delivery_id="forged",
            state=webhook.DELIVERY_STATE_REJECTED,
            reason=reason_pb2.REASON_INVALID_SIGNATURE,
            signature_state=webhook.SIGNATURE_STATE_INVALID,
        ),
        runs_of_hook=1,
        webhook=_run("run-hook", "maya"),
        manual=_run(
            "run-hand",
            "local",
            autopilot_id="hand",
            source=autopilot.RUN_SOURCE_MANUAL,
            originator_user_id="local",
            attribution_source=autopilot.ATTRIBUTION_SOURCE_DIRECT_HUMAN,
            rule_version_id="v-hand",
            agent_id="echo-id",
            issue=True,
        ),
        execution=execution_pb2.Execution(
            execution_id="execution",
            state=execution_pb2.EXECUTION_STATE_SUCCESS,
            scope_id="cron",
            trace_id=TRACE,
        ),
        schedule=_run(
            "run-cron",
            "local",
            autopilot_id="minute",
            trigger_id="cron",
            source=autopilot.RUN_SOURCE_SCHEDULE,
            rule_version_id="v-min",
            issue=True,
            root=("schedule autopilot_schedule_dispatch", "scheduler"),
        ),
        why=Explanation(
            "run-hook",
            tuple(
                Found(service, _finding(service))
                for service in (Service.WEBHOOK, Service.AUTOPILOT, Service.HEARTBEAT)
            ),
            {},
            cut=False,
        ),
    )


def _finding(service: Service) -> dict[str, Any]:
    return {
        "time": "2026-11-29T06:15:00Z",
        "subject": "run",
        "subject_id": "run-hook",
        "state": "completed",
        "reason": "",
        "text": f"{service} has done its part.",
        "rows": [{"table": "autopilot.runs", "id": "run-hook"}],
        "command": "",
    }


def _trace(root: tuple[str, str], *, lose: str = "") -> Trace:
    """A trace as the services write it: each span under the one before."""
    names = [
        root,
        ("autopilot.run", "autopilot"),
        ("run", "heartbeat"),
        ("invoke_agent triage", "heartbeat"),
    ]
    ids = ["0000000000000001", "0000000000000002", "0000000000000003", AGENT_SPAN]
    spans = [
        Span(
            trace_id=TRACE,
            span_id=ids[index],
            parent_id=ids[index - 1] if index else "",
            name=name,
            service=service,
            kind="internal",
            start=index,
            end=10 - index,
            error=False,
            message="",
            attributes={},
            events=(),
            links=(),
        )
        for index, (name, service) in enumerate(names)
        if name != lose
    ]
    return Trace(TRACE, tree(spans), ())


def _run(
    run_id: str,
    accountable: str,
    *,
    issue: bool = False,
    root: tuple[str, str] = ("POST /hooks/{token}", "webhook-gateway"),
    **fields: Any,
) -> RunStory:
    facts: dict[str, Any] = {
        "autopilot_id": "on-issue",
        "trigger_id": "hook",
        "source": autopilot.RUN_SOURCE_WEBHOOK,
        "attribution_source": autopilot.ATTRIBUTION_SOURCE_TRIGGER_OWNER,
        "rule_version_id": "v-issue",
        "agent_id": "triage-id",
        **fields,
    }
    mode = rule.EXECUTION_MODE_CREATE_ISSUE if issue else rule.EXECUTION_MODE_RUN_ONLY
    return RunStory(
        run=autopilot.AutopilotRun(
            run_id=run_id,
            state=autopilot.RUN_STATE_COMPLETED,
            occurrence_key=f"key:{run_id}",
            execution_mode=mode,
            accountable_user_id=accountable,
            trace_id=TRACE,
            **facts,
        ),
        attempts=(
            run_pb2.HeartbeatRun(
                run_id=f"attempt-of-{run_id}",
                state=run_pb2.RUN_STATE_SUCCEEDED,
                exit_code=0,
                summary=f"Triaged {SUBJECT}",
                result=json.dumps(
                    {
                        "result": {
                            "subject": SUBJECT,
                            "traceparent": f"00-{TRACE}-{AGENT_SPAN}-01",
                        }
                    }
                ).encode(),
                responsible_user_id=accountable,
            ),
        ),
        output=f"looking at {SUBJECT}\n",
        issue=issue_pb2.Issue(
            identifier="LAMP-1",
            status=issue_pb2.ISSUE_STATUS_DONE,
            occurrence_key=f"key:{run_id}",
        )
        if issue
        else None,
        trace=_trace(root),
    )


def with_run(seen: RunStory | None, **fields: Any) -> RunStory:
    """Change fields of the rule's run."""
    assert seen is not None
    run = autopilot.AutopilotRun()
    run.CopyFrom(seen.run)
    for name, value in fields.items():
        setattr(run, name, value)
    return replace(seen, run=run)


def with_attempt(seen: RunStory | None, **fields: Any) -> RunStory:
    """Change fields of the newest attempt."""
    assert seen is not None
    attempt = run_pb2.HeartbeatRun()
    attempt.CopyFrom(seen.attempts[0])
    for name, value in fields.items():
        setattr(attempt, name, value)
    return replace(seen, attempts=(attempt,))


def broken(story: Story) -> list[str]:
    return [
        check.promise for check in (*check_story(story), *check_traces(story)) if not check.kept
    ]


def test_a_good_story_keeps_every_promise() -> None:
    assert broken(good_story()) == []


Change = Callable[[Story], Story]


def _posts(**answers: Any) -> Change:
    return lambda story: replace(story, posts=replace(story.posts, **answers))


FAULTS: dict[str, tuple[Change, str]] = {
    "refused": (_posts(first=answer(500)), "GitHub's request is accepted"),
    "queued": (_posts(first=answer(202, status="queued")), "GitHub's request is accepted"),
    "accepted twice": (
        _posts(again=answer(200, status="accepted", delivery_id="delivery")),
        "the same request again is a duplicate",
    ),
    "duplicate of another": (
        _posts(again=answer(200, status="duplicate", delivery_id="other")),
        "the same request again is a duplicate",
    ),
    "forgery taken": (
        _posts(forged=answer(200, status="accepted", run_id="x")),
        "the same body with a bad signature",
    ),
    "forgery not kept": (lambda s: replace(s, rejected=None), "the forged one is kept"),
    "no delivery": (lambda s: replace(s, delivery=None), "its delivery is stored as sent"),
    "two runs": (lambda s: replace(s, runs_of_hook=2), "three requests made one run"),
    "run failed": (
        lambda s: replace(s, webhook=with_run(s.webhook, state=autopilot.RUN_STATE_FAILED)),
        "the webhook's run is completed",
    ),
    "run not there": (lambda s: replace(s, webhook=None), "the webhook's run is completed"),
    "agent failed": (
        lambda s: replace(s, webhook=with_attempt(s.webhook, exit_code=1)),
        "the webhook's agent was a process",
    ),
    "agent ran twice": (
        lambda s: (
            replace(s, schedule=replace(s.schedule, attempts=[*s.schedule.attempts] * 2))
            if s.schedule
            else s
        ),
        "the schedule's agent was woken once",
    ),
    "agent read nothing": (
        lambda s: replace(s, webhook=with_attempt(s.webhook, result=b'{"result": {}}')),
        "the agent has read GitHub's body",
    ),
    "somebody else answers": (
        lambda s: replace(s, webhook=with_run(s.webhook, accountable_user_id="local")),
        "maya, who published the trigger",
    ),
    "heartbeat names another": (
        lambda s: replace(s, webhook=with_attempt(s.webhook, responsible_user_id="local")),
        "maya, who published the trigger",
    ),
    "an older rule version": (
        lambda s: replace(s, schedule=with_run(s.schedule, rule_version_id="v-0")),
        "local, who published the trigger",
    ),
    "cron did not fire": (
        lambda s: replace(s, execution=None, schedule=None),
        "the cron trigger fired",
    ),
    "issue open": (
        lambda s: replace(s, manual=replace(s.manual, issue=issue_pb2.Issue(identifier="LAMP-1"))),
        "its issue is done",
    ),
    "nobody clicked": (
        lambda s: replace(s, manual=with_run(s.manual, originator_user_id="")),
        "local, who asked for it",
    ),
    "a service is silent": (
        lambda s: replace(s, why=replace(s.why, findings=s.why.findings[:2])),
        "asked why",
    ),
    "another trace": (
        lambda s: replace(s, delivery=webhook.Delivery(trace_id="0" * 32)),
        "one trace leads from POST /hooks/{token} to invoke_agent triage",
    ),
    "a span is lost": (
        lambda s: (
            replace(
                s,
                schedule=replace(
                    s.schedule, trace=_trace(("schedule x", "scheduler"), lose="autopilot.run")
                ),
            )
            if s.schedule
            else s
        ),
        "one trace leads from schedule to invoke_agent triage",
    ),
    "agent outside the trace": (
        lambda s: replace(
            s,
            webhook=with_attempt(
                s.webhook,
                result=json.dumps(
                    {"result": {"traceparent": f"00-{'1' * 32}-{AGENT_SPAN}-01"}}
                ).encode(),
            ),
        ),
        "the agent's own TRACEPARENT names that trace",
    ),
}


@pytest.mark.parametrize(("change", "promise"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_breaks_its_promise(change: Change, promise: str) -> None:
    assert any(each.startswith(promise) for each in broken(change(good_story())))


def test_a_trace_is_whole_once_the_agent_and_its_run_are_written() -> None:
    root = ("POST /hooks/{token}", "webhook-gateway")

    assert is_whole(_trace(root))
    assert not is_whole(None)
    for late in ("autopilot.run", "run", "invoke_agent triage"):
        assert not is_whole(_trace(root, lose=late))


def test_the_report_tells_a_reader_everything_but_the_credentials(
    capsys: pytest.CaptureFixture[str],
) -> None:
    story = good_story()
    printer = Printer(OutputFormat.TABLE)

    report_story(story, printer)
    report_checks(check_story(story), printer)

    shown = capsys.readouterr().out
    for words in (
        "200 accepted",
        "200 duplicate",
        "401 rejected",
        "LAMP-1 done",
        f"│ looking at {SUBJECT}",
        "direct_human",
        "invoke_agent triage",
        "schedule autopilot_schedule_dispatch",
        "heartbeat has done its part.",
        "✓ three requests made one run",
    ):
        assert words in shown
    assert "awt_abcd…" in shown
    assert "awt_abcdefgh" not in shown
    assert story.stage.secret.decode() not in shown


def test_a_broken_promise_is_shown_with_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    story = replace(good_story(), runs_of_hook=2)

    report_checks(check_story(story), Printer(OutputFormat.TABLE))

    assert "✗ three requests made one run\n      2 runs\n" in capsys.readouterr().out


def test_a_script_gets_the_same_as_one_document() -> None:
    story = good_story()

    shown = json.loads(json.dumps(document(story, check_story(story))))

    assert shown["ok"] is True
    assert [each["run_id"] for each in shown["runs"]] == ["run-hook", "run-cron", "run-hand"]
    assert shown["runs"][0]["trace"]["services"] == ["autopilot", "heartbeat", "webhook-gateway"]
    assert (
        document(replace(story, runs_of_hook=0), check_story(replace(story, runs_of_hook=0)))["ok"]
        is False
    )
