"""Which runs a batch of claims takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.heartbeat.made import NOW

from reveille_heartbeat.domain.queue import Candidate, Slots, ready_rank, select
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Refusal

candidates = st.builds(
    lambda run, agent, issue, rank, priority, age: Candidate(
        run_id=UUID(int=run),
        wakeup_id=UUID(int=run),
        agent_id=UUID(int=agent),
        issue_id=None if issue is None else UUID(int=issue),
        ready_rank=rank,
        priority=priority,
        created_at=NOW + timedelta(seconds=age),
    ),
    st.integers(1, 10**6),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 5)),
    st.integers(0, 3),
    st.integers(0, 4),
    st.integers(0, 50),
)


@given(
    st.lists(candidates, max_size=40, unique_by=lambda each: each.run_id),
    st.dictionaries(st.integers(1, 4), st.integers(0, 3)),
    st.dictionaries(st.integers(1, 4), st.integers(0, 3)),
    st.sets(st.integers(1, 5)),
    st.sets(st.integers(1, 10**6), max_size=10),
    st.integers(0, 10),
)
def test_no_slot_and_no_issue_is_given_twice_and_nobody_is_passed_over(
    waiting: list[Candidate],
    free: dict[int, int],
    today: dict[int, int],
    busy: set[int],
    gated: set[int],
    room: int,
) -> None:
    slots = Slots(
        room=room,
        free={UUID(int=agent): count for agent, count in free.items()},
        today={UUID(int=agent): count for agent, count in today.items()},
        busy_issues={UUID(int=issue) for issue in busy},
    )
    refusals = {
        each.run_id: Refusal(Reason.ISSUE_CLOSED, "closed")
        for each in waiting
        if each.run_id.int in gated
    }
    chosen = select(waiting, slots, refusals)

    assert len(chosen.claimed) <= room
    for agent, count in slots.free.items():
        taken_of = sum(each.agent_id == agent for each in chosen.claimed)
        assert taken_of <= min(count, slots.today.get(agent, count))
    issues = [each.issue_id for each in chosen.claimed if each.issue_id is not None]
    assert len(issues) == len(set(issues))
    assert not set(issues) & slots.busy_issues
    refused = {each.run_id: refusal for each, refusal in chosen.refused}
    assert refusals.items() <= refused.items()
    assert not {each.run_id for each in chosen.claimed} & set(refused)
    taken = set(issues)
    for each in waiting:
        if each in chosen.claimed or each.run_id in refusals:
            continue
        same = [other for other in chosen.claimed if other.agent_id == each.agent_id]
        if each.run_id in refused:
            # Only a run whose turn had come is refused for its agent's day.
            assert refused[each.run_id].reason is Reason.DAILY_RUN_LIMIT
            assert len(same) == slots.today[each.agent_id]
            continue
        full = len(same) >= slots.free.get(each.agent_id, 0) or len(chosen.claimed) == room
        held = each.issue_id in taken or each.issue_id in slots.busy_issues
        assert full or held
        if not held:
            # Nobody of its agent who came later in the order went before it.
            assert all(other.turn < each.turn for other in same)


@given(
    st.lists(candidates, max_size=40, unique_by=lambda each: each.run_id),
    st.lists(st.integers(0, 50), min_size=40, max_size=40),
    st.integers(1, 100),
)
def test_runs_are_taken_until_they_are_told_so_much_and_the_rest_waits_in_its_order(
    waiting: list[Candidate], sizes: list[int], room: int
) -> None:
    told = {each.wakeup_id: size for each, size in zip(waiting, sizes, strict=False)}
    slots = Slots(
        room=100,
        free={UUID(int=agent): 100 for agent in range(1, 5)},
        today={},
        busy_issues=set(),
    )
    whole = select(waiting, slots, {}).claimed
    taken = select(waiting, replace(slots, told_bytes=told, bytes_room=room), {}).claimed

    assert taken == whole[: len(taken)]
    # Only the last may go past it, and nobody is left where there is room.
    assert sum(told[each.wakeup_id] for each in taken[:-1]) < room
    assert taken == whole or sum(told[each.wakeup_id] for each in taken) >= room


def test_readiness_has_four_ranks() -> None:
    assert [ready_rank(IssueState.IN_PROGRESS), ready_rank(IssueState.TODO)] == [0, 1]
    assert [ready_rank(None), ready_rank(IssueState.BLOCKED)] == [2, 3]
