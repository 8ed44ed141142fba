"""What `why` says of issues and wakeups: once, and with the command that helps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.heartbeat.made import AGENT, ISSUE, NOW, RUN, WAKEUP
from tests.unit.heartbeat.test_enqueue_rules import BLOCKER

from reveille_heartbeat.domain.states import ISSUE_TERMINAL, IssueState, RunState, WakeupState
from reveille_heartbeat.domain.values import Wakeup
from reveille_heartbeat.usecases.why.explaining import Scene
from reveille_heartbeat.usecases.why.findings import about_issue, about_run, about_wakeup

S, W = IssueState, WakeupState
BOB = replace(AGENT, agent_id=UUID(int=21), name="bob")
OTHER = UUID(int=22)
SCENE = Scene(NOW, agents={AGENT.agent_id: AGENT, BOB.agent_id: BOB})
REVIEWED: dict[str, Any] = {"status": S.IN_REVIEW, "reviewer_agent_id": BOB.agent_id}
ASKED = replace(WAKEUP, agent_id=BOB.agent_id, wake_reason="execution_review_requested")
AGAIN = f"reveille wakeups create again --agent {AGENT.agent_id} --issue {ISSUE.issue_id}"
ASK_BOB = f"reveille wakeups create again --agent {BOB.agent_id} --issue {ISSUE.issue_id}"
GET = f"reveille issues get {ISSUE.issue_id}"


def was(state: WakeupState, wakeup: Wakeup = WAKEUP) -> list[Wakeup]:
    return [replace(wakeup, state=state)]


@pytest.mark.parametrize(
    ("changes", "wakeups", "under_way", "words", "command"),
    [
        ({}, was(W.CANCELLED), False, "is todo; nothing waits for it", AGAIN),
        ({"status": S.IN_PROGRESS}, was(W.FAILED), False, "nothing waits for it", AGAIN),
        ({}, was(W.CANCELLED), True, "is todo.", GET),
        ({"assignee_agent_id": None}, [], False, "is todo.", GET),
        ({"status": S.BACKLOG}, [], False, "is backlog.", GET),
        ({"status": S.DONE}, was(W.COMPLETED), False, "is done.", GET),
        (
            {"status": S.IN_PROGRESS},
            was(W.COMPLETED),
            False,
            "its agent ended without closing it",
            f"reveille issues move {ISSUE.issue_id} done",
        ),
        (REVIEWED, was(W.QUEUED, ASKED), True, "; agent bob is to judge it.", GET),
        (REVIEWED, was(W.COMPLETED, ASKED), False, "; agent bob is to judge it.", GET),
        (REVIEWED, was(W.SKIPPED, ASKED), False, "bob is to judge it, and was not asked", ASK_BOB),
        (REVIEWED, was(W.COMPLETED), False, "bob is to judge it, and was not asked", ASK_BOB),
        (
            {"status": S.IN_REVIEW, "reviewer_user_id": "max"},
            [],
            False,
            "; max is to judge it, and no agent is asked.",
            GET,
        ),
    ],
)
def test_of_an_issue_it_says_who_is_next_and_how_to_wake_them(
    changes: dict[str, Any], wakeups: list[Wakeup], under_way: bool, words: str, command: str
) -> None:
    found = about_issue(replace(ISSUE, **changes), wakeups, SCENE, under_way=under_way)

    assert words in found.text
    assert found.command == command


@pytest.mark.parametrize("status", S)
def test_only_what_has_not_ended_waits_for_what_blocks_it(status: IssueState) -> None:
    scene = replace(SCENE, blockers={ISSUE.issue_id: (BLOCKER,)})
    found = about_issue(replace(ISSUE, status=status), [], scene, under_way=False)

    ended = status in ISSUE_TERMINAL
    assert ("it waits for" in found.text) is not ended
    assert (str(BLOCKER.issue_id) in found.related) is not ended


@pytest.mark.parametrize(
    ("changes", "text", "command"),
    [
        (
            {"state": W.COALESCED, "joined_wakeup_id": OTHER},
            f"Wakeup “Look” joined wakeup {OTHER}, which is about the same.",
            f"reveille wakeups get {OTHER}",
        ),
        (
            {"state": W.DEFERRED, "issue_id": ISSUE.issue_id},
            f"Wakeup “Look” waits for attempt {OTHER}, which holds its issue.",
            f"reveille agent-runs watch {OTHER}",
        ),
    ],
)
def test_of_a_wakeup_it_says_nothing_twice(
    changes: dict[str, Any], text: str, command: str
) -> None:
    scene = replace(SCENE, holders={ISSUE.issue_id: OTHER})
    found = about_wakeup(replace(WAKEUP, message="the same in other words", **changes), scene)

    assert (found.text, found.command) == (text, command)


@pytest.mark.parametrize(
    ("executor", "words"),
    [
        ("host/1/2/mark", "Attempt 1 runs on host/1/2/mark"),
        ("", "Attempt 1 goes on although its executor has stopped"),
    ],
)
def test_an_attempt_at_work_names_its_executor_or_says_that_it_was_left(
    executor: str, words: str
) -> None:
    run = replace(RUN, state=RunState.RUNNING, occupied=True, executor_id=executor)

    assert about_run(run, SCENE).text.startswith(words)
