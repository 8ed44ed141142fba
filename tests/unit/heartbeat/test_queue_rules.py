"""Which runs a batch of claims takes."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.heartbeat.made import NOW

from reveille_heartbeat.domain.queue import Candidate, Slots, ready_rank, select
from reveille_heartbeat.domain.states import IssueState

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
    st.sets(st.integers(1, 5)),
    st.sets(st.integers(1, 5)),
    st.integers(0, 10),
)
def test_no_slot_and_no_issue_is_given_twice_and_nobody_is_passed_over(
    waiting: list[Candidate], free: dict[int, int], busy: set[int], closed: set[int], limit: int
) -> None:
    slots = Slots(
        free={UUID(int=agent): count for agent, count in free.items()},
        busy_issues={UUID(int=issue) for issue in busy},
        issue_status={
            UUID(int=issue): IssueState.DONE if issue in closed else IssueState.TODO
            for issue in range(1, 6)
        },
    )
    chosen = select(waiting, slots, limit)

    assert len(chosen.claimed) <= limit
    for agent, count in slots.free.items():
        assert sum(each.agent_id == agent for each in chosen.claimed) <= count
    issues = [each.issue_id for each in chosen.claimed if each.issue_id is not None]
    assert len(issues) == len(set(issues))
    assert not set(issues) & (slots.busy_issues | {UUID(int=issue) for issue in closed})
    assert {each.issue_id for each in chosen.closed} <= {UUID(int=issue) for issue in closed}
    if len(chosen.claimed) == limit:
        return
    taken = set(issues)
    for each in waiting:
        if each in chosen.claimed or each in chosen.closed:
            continue
        used = sum(other.agent_id == each.agent_id for other in chosen.claimed)
        full = used >= slots.free.get(each.agent_id, 0)
        held = each.issue_id in taken or each.issue_id in slots.busy_issues
        assert full or held
        if full and not held:
            better = [o.turn for o in chosen.claimed if o.agent_id == each.agent_id]
            assert all(turn < each.turn for turn in better)


def test_readiness_has_four_ranks() -> None:
    assert [ready_rank(IssueState.IN_PROGRESS), ready_rank(IssueState.TODO)] == [0, 1]
    assert [ready_rank(None), ready_rank(IssueState.BLOCKED)] == [2, 3]
