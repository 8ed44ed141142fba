"""Whom a wish is aimed at, whether that one takes work, and who may wake it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.heartbeat.made import AGENT, NOW, SPACE, WORKSPACE

from reveille_heartbeat.domain.invocability import Question, first_failure
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import AgentState
from reveille_heartbeat.domain.targets import Manager, Squad, Target, broken_chain, no_work
from reveille_heartbeat.domain.values import InvocationRule, WorkspaceStatus

BOSS, CHIEF = UUID(int=20), UUID(int=21)
PAUSED, ARCHIVED = AgentState.PAUSED, AgentState.ARCHIVED
SQUAD = Squad(
    squad_id=UUID(int=30),
    workspace_id=SPACE,
    name="night shift",
    leader_agent_id=AGENT.agent_id,
    member_agent_ids=(),
    state=AgentState.ACTIVE,
    pause_reason="",
    revision=1,
    created_at=NOW,
    updated_at=NOW,
)
MEMBERS = replace(AGENT, invocation_rule=InvocationRule.MEMBERS, invocation_user_ids=("max",))


def managers(*each: tuple[UUID, UUID | None], **of_boss: Any) -> dict[UUID, Manager]:
    made = {
        agent_id: Manager(agent_id, SPACE, f"m{agent_id.int}", AgentState.ACTIVE, above)
        for agent_id, above in each
    }
    if of_boss:
        made[BOSS] = replace(made[BOSS], **of_boss)
    return made


@pytest.mark.parametrize(
    ("above", "known", "problem"),
    [
        (None, {}, ""),
        (BOSS, managers((BOSS, None)), ""),
        (BOSS, managers((BOSS, CHIEF), (CHIEF, None)), ""),
        (BOSS, managers((BOSS, None), state=PAUSED), ""),
        (BOSS, {}, "is not in this workspace"),
        (BOSS, managers((BOSS, None), workspace_id=UUID(int=9)), "is not in this workspace"),
        (BOSS, managers((BOSS, CHIEF)), "is not in this workspace"),
        (BOSS, managers((BOSS, None), state=ARCHIVED), "is archived"),
        (CHIEF, managers((CHIEF, BOSS), (BOSS, None), state=ARCHIVED), "is archived"),
        (BOSS, managers((BOSS, AGENT.agent_id)), "comes back to"),
        (BOSS, managers((BOSS, CHIEF), (CHIEF, BOSS)), "comes back to"),
    ],
)
def test_everybody_above_an_agent_is_there_at_work_and_once(
    above: UUID | None, known: dict[UUID, Manager], problem: str
) -> None:
    found = broken_chain(AGENT.agent_id, SPACE, above, known)
    assert (problem in found) if problem else found == ""
    refusal = no_work(Target(replace(AGENT, manager_agent_id=above), None, known))
    assert (None if refusal is None else refusal.reason) == (
        Reason.AGENT_NOT_INVOKABLE if problem else None
    )


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target(replace(AGENT, state=PAUSED, pause_reason="holidays")), "is paused: holidays"),
        (Target(replace(AGENT, state=ARCHIVED)), "agent ann is archived"),
        (Target(replace(AGENT, state=PAUSED), SQUAD), "squad leader ann of squad night shift"),
        (Target(AGENT, replace(SQUAD, state=PAUSED)), "squad night shift is paused"),
        (Target(AGENT, replace(SQUAD, state=ARCHIVED)), "squad night shift is archived"),
    ],
)
def test_who_rests_takes_no_work_and_says_why(target: Target, words: str) -> None:
    refusal = no_work(target)
    assert refusal is not None
    assert refusal.reason is Reason.AGENT_NOT_INVOKABLE
    assert words in refusal.message


def test_an_agent_whose_last_run_failed_takes_work() -> None:
    assert no_work(Target(replace(AGENT, last_run_failed=True))) is None


ASK = Question(SPACE, AGENT.agent_id, None, None, "max", True, True)
OF_SQUAD = replace(ASK, agent_id=None, squad_id=SQUAD.squad_id)


@pytest.mark.parametrize(
    ("question", "changes", "reason"),
    [
        (ASK, {}, None),
        (ASK, {"workspace": None}, Reason.WORKSPACE_INACTIVE),
        (
            ASK,
            {"workspace": replace(WORKSPACE, status=WorkspaceStatus.PAUSED)},
            Reason.WORKSPACE_INACTIVE,
        ),
        (replace(ASK, project_id=UUID(int=40)), {}, None),
        (
            replace(ASK, project_id=UUID(int=40)),
            {"project_open": False, "target": Target(None)},
            Reason.PROJECT_UNAVAILABLE,
        ),
        (ASK, {"target": Target(None)}, Reason.TARGET_UNAVAILABLE),
        (OF_SQUAD, {"target": Target(None)}, Reason.TARGET_UNAVAILABLE),
        (OF_SQUAD, {"target": Target(AGENT, SQUAD)}, None),
        (
            OF_SQUAD,
            {"target": Target(AGENT, replace(SQUAD, state=ARCHIVED))},
            Reason.TARGET_UNAVAILABLE,
        ),
        (ASK, {"target": Target(replace(AGENT, state=ARCHIVED))}, Reason.TARGET_UNAVAILABLE),
        (
            ASK,
            {"target": Target(replace(AGENT, state=PAUSED, runtime_id=None))},
            Reason.AGENT_NOT_INVOKABLE,
        ),
        (
            ASK,
            {"target": Target(replace(AGENT, runtime_id=None, runtime_present=False))},
            Reason.AGENT_RUNTIME_REQUIRED,
        ),
        (
            replace(ASK, runtime_must_be_online=False),
            {"target": Target(replace(AGENT, runtime_unusable_reason="not executable"))},
            Reason.RUNTIME_UNUSABLE,
        ),
        (ASK, {"target": Target(replace(AGENT, runtime_present=False))}, Reason.RUNTIME_OFFLINE),
        (
            replace(ASK, runtime_must_be_online=False),
            {"target": Target(replace(AGENT, runtime_present=False))},
            None,
        ),
        (replace(ASK, principal_is_member=False), {}, Reason.INVOCATION_NOT_ALLOWED),
        (replace(ASK, principal_user_id="owner", principal_is_member=False), {}, None),
        (ASK, {"target": Target(MEMBERS)}, None),
        (
            replace(ASK, principal_user_id="ann"),
            {"target": Target(MEMBERS)},
            Reason.INVOCATION_NOT_ALLOWED,
        ),
        (
            ASK,
            {"target": Target(replace(AGENT, invocation_rule=InvocationRule.PRIVATE))},
            Reason.INVOCATION_NOT_ALLOWED,
        ),
        (
            replace(ASK, principal_user_id=""),
            {"target": Target(replace(AGENT, invocation_rule=InvocationRule.PRIVATE))},
            None,
        ),
    ],
)
def test_the_first_failing_check_is_the_answer(
    question: Question, changes: dict[str, Any], reason: Reason | None
) -> None:
    given: dict[str, Any] = {
        "workspace": WORKSPACE,
        "target": Target(AGENT),
        "project_open": True,
    } | changes
    refusal = first_failure(question, **given)
    assert (None if refusal is None else refusal.reason) == reason


def test_what_is_said_of_a_runtime_names_who_was_asked_for() -> None:
    away = replace(AGENT, runtime_present=False)
    of_agent = first_failure(ASK, WORKSPACE, Target(away), project_open=True)
    of_squad = first_failure(OF_SQUAD, WORKSPACE, Target(away, SQUAD), project_open=True)
    assert of_agent is not None
    assert of_squad is not None
    assert of_agent.message == "the runtime of agent ann is offline at dispatch time"
    assert of_squad.message.startswith("the runtime of squad leader ann of squad night shift")
