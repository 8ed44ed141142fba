"""The lock order: levels from the top, ids ascending, each once."""

from __future__ import annotations

from uuid import UUID

import pytest

from reveille_runtime.lockorder import Level, LockOrder, LockOrderViolation

A, B, C, D = (UUID(int=number) for number in range(1, 5))


def test_levels_stand_in_the_order_of_the_design() -> None:
    assert [level.name for level in sorted(Level)] == [
        "AUTOPILOT",
        "WORKSPACE",
        "AGENT",
        "ISSUE",
        "WAKEUP",
        "RUN",
        "BUDGET",
    ]


def test_ids_are_sorted_and_each_taken_once() -> None:
    assert LockOrder().note(Level.AGENT, [C, A, B, A]) == [A, B, C]


def test_going_down_is_allowed_and_skipping_levels_too() -> None:
    locks = LockOrder()
    locks.note(Level.WORKSPACE, [D])
    locks.note(Level.AGENT, [A])
    locks.note(Level.BUDGET, [A])
    assert locks.holds(Level.AGENT, A)
    assert not locks.holds(Level.AGENT, B)


def test_going_up_is_refused() -> None:
    locks = LockOrder()
    locks.note(Level.RUN, [A])
    with pytest.raises(LockOrderViolation, match=r"AGENT .* while RUN"):
        locks.note(Level.AGENT, [B])


def test_a_smaller_id_of_the_same_level_is_refused() -> None:
    locks = LockOrder()
    locks.note(Level.ISSUE, [B])
    locks.note(Level.ISSUE, [C])
    with pytest.raises(LockOrderViolation):
        locks.note(Level.ISSUE, [A, D])


def test_what_is_held_may_be_named_again_at_any_time() -> None:
    locks = LockOrder()
    locks.note(Level.AGENT, [A, B])
    locks.note(Level.RUN, [C])
    assert locks.note(Level.AGENT, [B, A]) == [A, B]
    with pytest.raises(LockOrderViolation):
        locks.note(Level.AGENT, [A, D])
    # A refused request leaves no trace.
    assert not locks.holds(Level.AGENT, D)
