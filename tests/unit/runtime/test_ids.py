"""Ids: sorted by time, unguessable where they must be, and one spelling each."""

from __future__ import annotations

import uuid

import pytest

from reveille_runtime.errors import FieldViolation, InvalidArgument
from reveille_runtime.ids import new_id, new_token, parse_id


def test_ids_are_version_7_and_sort_by_age() -> None:
    made = [new_id() for _ in range(1000)]

    assert {one.version for one in made} == {7}
    assert all(type(one) is uuid.UUID for one in made)
    assert sorted(made) == made


def test_tokens_say_nothing_about_their_age() -> None:
    assert new_token().version == 4


def test_an_id_is_read_back() -> None:
    made = new_id()

    assert parse_id(str(made), "run_id") == made
    assert parse_id(str(made).upper(), "run_id") == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "not-an-id",
        "{01890a5d-ac96-774b-bcce-b302099a8057}",
        "urn:uuid:01890a5d-ac96-774b-bcce-b302099a8057",
        "01890a5dac96774bbcceb302099a8057",
        " 01890a5d-ac96-774b-bcce-b302099a8057",
        "x" * 10_000,
    ],
)
def test_anything_else_names_its_field(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_id(text, "run_id")

    (violation,) = refused.value.violations
    assert violation == FieldViolation("run_id", violation.description, "INVALID_ID")
    assert len(violation.description) < 100
    assert refused.value.reason == "INVALID_ID"
