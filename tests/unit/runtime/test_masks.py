"""Update masks: what they name, and what they may not."""

from __future__ import annotations

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from reveille_runtime.errors import InvalidArgument
from reveille_runtime.masks import read_mask
from reveille_runtime.validation import Violations

ALLOWED = ("name", "policy.interval", "policy.enabled", "policy_note")


@pytest.mark.parametrize(
    ("paths", "named"),
    [
        (["name"], {"name"}),
        (["name", "name"], {"name"}),
        (["policy"], {"policy.interval", "policy.enabled"}),
        (["policy.enabled", "name"], {"policy.enabled", "name"}),
        (["policy_note"], {"policy_note"}),
    ],
)
def test_a_path_names_itself_and_what_lies_below_it(paths: list[str], named: set[str]) -> None:
    found = Violations()
    assert read_mask(found, FieldMask(paths=paths), ALLOWED) == named
    found.check()


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ([], "FIELD_REQUIRED"),
        ([""], "INVALID_ENUM"),
        (["*"], "INVALID_ENUM"),
        (["name", "create_time"], "INVALID_ENUM"),
        (["policy."], "INVALID_ENUM"),
        (["name.first"], "INVALID_ENUM"),
    ],
)
def test_an_empty_mask_and_a_path_nobody_may_change_are_refused(
    paths: list[str], reason: str
) -> None:
    found = Violations()
    read_mask(found, FieldMask(paths=paths), ALLOWED)
    with pytest.raises(InvalidArgument) as caught:
        found.check()
    assert [(each.field, each.reason) for each in caught.value.violations] == [
        ("update_mask", reason)
    ]
