"""Update masks: which fields a caller wants changed."""

from __future__ import annotations

from collections.abc import Collection

from google.protobuf.field_mask_pb2 import FieldMask

from reveille_runtime.validation import Violations

FIELD = "update_mask"


def read_mask(
    found: Violations, mask: FieldMask, allowed: Collection[str], field: str = FIELD
) -> frozenset[str]:
    """Give the paths of `allowed` that a mask names; a message's own path names all below it.

    An empty mask, and a path that nobody may change, is refused by name.
    """
    if not mask.paths:
        found.add(field, "is required: name the fields to change", "FIELD_REQUIRED")
    named: set[str] = set()
    for path in mask.paths:
        covered = {each for each in allowed if each == path or each.startswith(f"{path}.")}
        if not covered:
            found.add(field, f"{path!r} is none of {', '.join(sorted(allowed))}", "INVALID_ENUM")
        named |= covered
    return frozenset(named)
