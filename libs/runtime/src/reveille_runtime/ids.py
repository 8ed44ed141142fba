"""Identifiers: made by the application, so that they are known before the insert."""

from __future__ import annotations

import uuid
from functools import lru_cache
from uuid import UUID

from uuid_utils import compat

from reveille_runtime.errors import InvalidArgument


def new_id() -> UUID:
    """Make an id that sorts by the time it was made (UUIDv7)."""
    return compat.uuid7()


def new_token() -> UUID:
    """Make a fencing token or nonce that says nothing about when it was made (UUIDv4)."""
    return uuid.uuid4()


def parse_id(text: str, field: str) -> UUID:
    """Read an id from a request, or name the field that does not hold one."""
    parsed = _parsed(text)
    if parsed is None:
        shown = text if len(text) <= 64 else text[:64] + "…"
        raise InvalidArgument.of(field, f"not an id: {shown!r}", "INVALID_ID")
    return parsed


@lru_cache(maxsize=1024)
def _parsed(text: str) -> UUID | None:
    # The ids of a burst's rules and workspaces come again with each item.
    try:
        parsed = UUID(text)
    except ValueError:
        return None
    # UUID() also takes braces, "urn:uuid:" and no hyphens; one spelling keeps ids comparable.
    return parsed if str(parsed) == text.lower() else None
