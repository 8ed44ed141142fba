"""`reveille why`: every service is asked, and what they answer leads on."""

from __future__ import annotations

import grpc
import pytest

from reveille.explain.v1 import explain_service_pb2 as pb
from reveille_cli.apis import Service, explain_api
from reveille_cli.findings import MAX_IDS

from .conftest import Answer, Desk


def finding(
    subject: str,
    subject_id: str,
    *,
    at: str = "2026-11-29T12:00:00Z",
    state: str = "done",
    reason: str = "",
    text: str = "",
    command: str = "",
    related: tuple[str, ...] = (),
) -> pb.Finding:
    made = pb.Finding(
        subject=subject,
        subject_id=subject_id,
        state=state,
        reason=reason,
        text=text,
        command=command,
        related=related,
        rows=[pb.Row(table=f"x.{subject}s", id=subject_id)],
    )
    made.time.FromJsonString(at)
    return made


def asked(**told: list[pb.Finding]) -> list[Answer]:
    """Answer one round, in which every service is asked about one id."""
    return [
        Answer(
            explain_api(service),
            "Explain",
            pb.ExplainResponse(findings=told.get(service.name.lower(), [])),
        )
        for service in Service
    ]


def test_the_walk(desk: Desk) -> None:
    run = finding(
        "run",
        "r1",
        at="2026-11-29T12:00:02Z",
        state="skipped",
        reason="autopilot_paused",
        text="Refused by a rule.",
        command="reveille autopilots resume p1",
        related=("k1", "t1"),
    )
    execution = finding("execution", "x1", at="2026-11-29T12:00:01Z", related=("r1", "k1"))
    trigger = finding("trigger", "t1", at="2026-11-29T11:00:00Z", related=("p1",))
    other = finding("run", "r2", text="Another run of the trigger.")
    answers = [
        *asked(autopilot=[run]),
        *asked(autopilot=[run], scheduler=[execution]),
        *asked(autopilot=[trigger, other]),
    ]

    outcome = desk.run("why", "r1", "-o", "json", answers=answers)

    assert [each.id for each in outcome.requests[::4]] == ["r1", "k1", "t1"]
    shown = outcome.json
    assert [each["subject_id"] for each in shown["findings"]] == ["r1", "x1", "t1"]
    assert shown["findings"][0] == {
        "service": "autopilot",
        "time": "2026-11-29T12:00:02Z",
        "subject": "run",
        "subject_id": "r1",
        "state": "skipped",
        "reason": "autopilot_paused",
        "text": "Refused by a rule.",
        "rows": [{"table": "x.runs", "id": "r1"}],
        "command": "reveille autopilots resume p1",
        "related": ["k1", "t1"],
    }
    assert (shown["id"], shown["not_asked"], shown["truncated"]) == ("r1", [], False)


def test_what_was_asked_about_is_walked_although_many_share_it(desk: Desk) -> None:
    trigger = finding("trigger", "t1", related=("p1",))
    recent = finding("run", "r1", related=("t1",))
    answers = [
        *asked(autopilot=[trigger, recent]),
        *asked(autopilot=[finding("autopilot", "p1", related=("t1", "t2"))]),
    ]

    outcome = desk.run("why", "t1", "-o", "json", answers=answers)

    assert {each["subject_id"] for each in outcome.json["findings"]} == {"t1", "r1", "p1"}


def test_the_words(desk: Desk) -> None:
    run = finding(
        "run", "r1", state="skipped", reason="late", text="It came late.", command="do it"
    )

    outcome = desk.run("why", "r1", answers=asked(autopilot=[run]))

    assert outcome.out.splitlines() == [
        "2026-11-29T12:00:00Z  run r1  skipped (late)",
        "    It came late.",
        "    rows: x.runs r1",
        "    next: do it",
    ]


@pytest.mark.parametrize(("subject", "flag"), [("trigger", "trigger"), ("autopilot", "autopilot")])
def test_a_busy_rule_says_where_its_other_runs_are(desk: Desk, subject: str, flag: str) -> None:
    def told(runs: int) -> str:
        found = [finding(subject, "t1"), *(finding("run", f"r{each}") for each in range(runs))]
        return desk.run("why", "t1", answers=asked(autopilot=found)).err

    assert told(4) == ""
    assert f"`reveille runs list --{flag} t1 --state failed`" in told(5)


def test_a_service_that_is_away_is_named_and_not_asked_again(desk: Desk) -> None:
    run = finding("run", "r1", related=("k1",))
    first = asked(autopilot=[run])
    first[2] = Answer(explain_api(Service.WEBHOOK), "Explain", grpc.StatusCode.UNAVAILABLE)
    second = [each for each in asked() if each.api.service is not Service.WEBHOOK]

    outcome = desk.run("why", "r1", answers=[*first, *second])

    assert outcome.exit_code == 0
    assert outcome.err == (
        "webhook-gateway could not be asked: webhook-gateway does not answer at webhook-gateway\n"
    )


def test_nobody_knows(desk: Desk) -> None:
    outcome = desk.run("why", "r1", "-o", "json", answers=asked())

    assert outcome.exit_code == 3
    assert outcome.json["error"]["reason"] == "not_found"


def test_of_an_occurrence_that_nobody_knows_the_trigger_to_ask_about_is_named(desk: Desk) -> None:
    trigger_id = "01a22e9f-5171-7348-afdc-cc3246dffd16"

    outcome = desk.run("why", f"schedule:{trigger_id}:2026-11-30T08:00:00Z", answers=asked())

    assert outcome.exit_code == 3
    assert f"`reveille why {trigger_id}` tells of its schedule" in outcome.err


def test_nobody_who_answers_knows(desk: Desk) -> None:
    answers = asked()
    answers[0] = Answer(explain_api(Service.SCHEDULER), "Explain", grpc.StatusCode.UNAVAILABLE)

    outcome = desk.run("why", "r1", "-o", "json", answers=answers)

    assert outcome.exit_code == 6
    assert outcome.json["error"]["reason"] == "service_unreachable"


@pytest.mark.parametrize("style", ["wide", "deep"])
def test_the_walk_is_bounded(desk: Desk, style: str) -> None:
    if style == "wide":
        many = tuple(f"k{index}" for index in range(MAX_IDS + 5))
        answers = [*asked(autopilot=[finding("run", "r1", related=many)])]
        answers += [each for _ in range(MAX_IDS - 1) for each in asked()]
    else:
        answers = []
        for index in range(6):
            answers += asked(autopilot=[finding("run", f"r{index}", related=(f"r{index + 1}",))])

    outcome = desk.run("why", "r0", answers=answers)

    assert "There is more that this leads to" in outcome.err
