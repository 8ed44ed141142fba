"""What is remembered of what rules had to ask."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from reveille_autopilot.usecases.invocability import Inquiry, Question, Subject

# A test that asks it fails.
NOBODY: Any = None


async def test_what_asked_nothing_this_time_is_forgotten() -> None:
    subjects = [(uuid4(), None), (uuid4(), None)]
    last: dict[Subject, Question] = {
        each: Question(uuid4(), uuid4(), None, None, "u", True, False) for each in subjects
    }
    with Inquiry(NOBODY, last) as inquiry:
        assert await inquiry.answers(subjects[:1], []) == {}

    assert last.keys() == {subjects[1]}
    with Inquiry(NOBODY, last) as inquiry:
        inquiry.foresee(subjects[:1])
        assert await inquiry.answers([], []) == {}
