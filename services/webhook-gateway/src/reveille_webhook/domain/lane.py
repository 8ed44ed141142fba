"""Deliveries that are dispatched one after another: those with one value at the hook's path."""

from __future__ import annotations

import hashlib
from typing import Any

from reveille_webhook.domain.request import at_path, storable

_LONGEST = 255


def is_path(path: str) -> bool:
    """Tell whether a path could lead anywhere: names and positions with a dot between them."""
    return all(step == step.strip() != "" for step in path.split("."))


def lane_key(path: str | None, document: Any) -> str | None:
    """Give the lane, None for a delivery that waits for nobody."""
    if path is None:
        return None
    value = at_path(document, path)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        return None
    text = storable(str(value), 1 << 16)
    return text if len(text) <= _LONGEST else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
