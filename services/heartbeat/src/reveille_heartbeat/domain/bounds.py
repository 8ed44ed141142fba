"""What an adapter may have kept of an event: everything bounded, and every cut marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_TEXT = 16 * 1024
MAX_ITEMS = 50
MAX_KEYS = 100
MAX_DEPTH = 6
MAX_TYPE = 100
CIRCULAR = "[circular]"
TOO_DEEP = "[too deep]"
# Of what an agent says it is doing, the most that is shown of each part.
PROGRESS_PARTS: Mapping[str, int] = {"phase": 60, "message": 180, "tool": 80, "snippet": 220}


def _unchanged(text: str) -> str:
    return text


def bounded_text(text: str, most: int = MAX_TEXT) -> str:
    """Cut a text, telling how much is missing."""
    # Neither a NUL nor half of a surrogate pair can be stored.
    clean = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if len(clean) <= most:
        return clean
    return f"{clean[:most]}… [{len(clean) - most} more characters]"


def bounded(value: Any, redact: Callable[[str], str] = _unchanged) -> Any:
    """Give the JSON that is kept of a value: `redact` sees every text before it is cut."""
    return _bounded(value, redact, 0, ())


def _bounded(value: Any, redact: Callable[[str], str], depth: int, above: tuple[int, ...]) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            # JSON has no word for the others.
            return value if abs(value) < float("inf") else str(value)
        case str():
            return bounded_text(redact(value))
        case Mapping() | list() | tuple():
            if id(value) in above:
                return CIRCULAR
            if depth >= MAX_DEPTH:
                return TOO_DEEP
            inside = (*above, id(value))
            if isinstance(value, Mapping):
                return _object(value, redact, depth, inside)
            return _array(value, redact, depth, inside)
        case _:
            return bounded_text(redact(str(value)))


def _object(
    value: Mapping[Any, Any], redact: Callable[[str], str], depth: int, inside: tuple[int, ...]
) -> dict[str, Any]:
    kept = {
        bounded_text(redact(str(key)), MAX_TYPE): _bounded(item, redact, depth + 1, inside)
        for key, item in list(value.items())[:MAX_KEYS]
    }
    if len(value) > MAX_KEYS:
        kept["…"] = f"[{len(value) - MAX_KEYS} more keys]"
    return kept


def _array(
    value: Sequence[Any], redact: Callable[[str], str], depth: int, inside: tuple[int, ...]
) -> list[Any]:
    kept = [_bounded(item, redact, depth + 1, inside) for item in value[:MAX_ITEMS]]
    if len(value) > MAX_ITEMS:
        kept.append(f"… [{len(value) - MAX_ITEMS} more items]")
    return kept


def bounded_progress(
    parts: Mapping[str, str], redact: Callable[[str], str] = _unchanged
) -> dict[str, str]:
    """Give what is shown of an agent's own words on what it is doing."""
    return {
        name: bounded_text(redact(parts[name]))[:most]
        for name, most in PROGRESS_PARTS.items()
        if parts.get(name)
    }
