"""Edits of rules: what they leave, and what has to be recorded or looked at again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.unit.autopilot.builders import an_autopilot

from reveille_autopilot.domain.editing import RuleEdit, change_of, target_changed
from reveille_autopilot.domain.states import Change

BEFORE = an_autopilot()
AGENT, SQUAD = UUID(int=30), UUID(int=40)


def test_work_moves_to_a_squad_and_back() -> None:
    squads = RuleEdit(BEFORE.id, "v1", {"squad_id": SQUAD}).applied(BEFORE)
    assert (squads.agent_id, squads.squad_id) == (None, SQUAD)
    agents = RuleEdit(BEFORE.id, "v1", {"agent_id": AGENT}).applied(squads)
    assert (agents.agent_id, agents.squad_id) == (AGENT, None)


@pytest.mark.parametrize(
    ("values", "change", "looked_at"),
    [
        ({}, None, False),
        ({"prompt": BEFORE.prompt}, None, False),
        ({"prompt": "Look twice."}, Change.UPDATED, False),
        ({"agent_id": AGENT}, Change.UPDATED, True),
        ({"squad_id": SQUAD}, Change.UPDATED, True),
        # Recorded, so that a run tells the title it had; responsibility stays.
        ({"title": "Watch"}, Change.RENAMED, False),
        ({"project_id": UUID(int=50)}, Change.RENAMED, True),
    ],
)
def test_what_an_edit_records_and_whether_its_target_is_looked_at(
    values: dict[str, Any], change: Change | None, looked_at: bool
) -> None:
    after = RuleEdit(BEFORE.id, "v1", values).applied(BEFORE)
    assert (change_of(BEFORE, after), target_changed(BEFORE, after)) == (change, looked_at)
