"""Times as they are typed and written: lengths such as `15m`, points in RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from reveille_cli.failures import refused

_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def duration(text: str, field: str) -> timedelta:
    """Read a length of time: `90s`, `15m`, `1h30m`, `7d`, or a number of seconds."""
    spelled = f"{text}s" if re.fullmatch(r"\d+(\.\d+)?", text) else text
    if not re.fullmatch(f"(?:{_PIECE.pattern})+", spelled):
        raise refused(field, f"{text!r} is no length of time; write it like 90s, 15m, 1h30m or 7d")
    try:
        return timedelta(
            seconds=sum(float(number) * _SECONDS[unit] for number, unit in _PIECE.findall(spelled))
        )
    except OverflowError:
        raise refused(field, f"{text!r} is too long") from None


def instant(text: str, field: str) -> datetime:
    """Read a point in time in RFC 3339, offset included."""
    try:
        read = datetime.fromisoformat(text)
        if read.utcoffset() is not None:
            return read.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise refused(
        field, f"{text!r} is no point in time; write it like 2026-03-08T07:00:00Z, offset included"
    )


def rfc3339(moment: datetime) -> str:
    """Write a point in time: UTC, as exact as it is."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
