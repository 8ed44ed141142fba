"""Requests parsed into domain values, with everything that is wrong reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from reveille_runtime import plain_json
from reveille_runtime.errors import FieldViolation, InvalidArgument
from reveille_runtime.ids import parse_id

NIL = UUID(int=0)
EPOCH = datetime.fromtimestamp(0, tz=UTC)
E = TypeVar("E", bound=StrEnum)


class Violations:
    """Collects refused fields.

    Each method returns the parsed value, or a harmless stand-in after noting what is wrong, so a
    handler parses all its fields and then calls `check()` before it uses any.
    """

    def __init__(self) -> None:
        self._found: list[FieldViolation] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, field: str, description: str, reason: str = "INVALID_FIELD") -> None:
        """Note one refused field."""
        self._found.append(FieldViolation(field, description, reason))

    def check(self) -> None:
        """Raise `InvalidArgument` with all that was noted."""
        if self._found:
            raise InvalidArgument(tuple(self._found))

    def uuid(self, field: str, text: str) -> UUID:
        """Parse a required id."""
        if not text:
            self.add(field, "is required", "FIELD_REQUIRED")
            return NIL
        try:
            return parse_id(text, field)
        except InvalidArgument as error:
            self._found.extend(error.violations)
            return NIL

    def optional_uuid(self, field: str, text: str) -> UUID | None:
        """Parse an id that may be empty."""
        return self.uuid(field, text) if text else None

    def text(
        self, field: str, value: str, *, minimum: int = 0, maximum: int = 10_000, strip: bool = True
    ) -> str:
        """Check a text's length in characters; NUL, which the database cannot hold, is refused."""
        kept = value.strip() if strip else value
        if "\x00" in kept:
            self.add(field, "contains a NUL character", "INVALID_TEXT")
        elif minimum > 0 and not kept:
            self.add(field, "is required", "FIELD_REQUIRED")
        elif len(kept) < minimum:
            self.add(field, f"is shorter than {minimum} characters", "TOO_SHORT")
        elif len(kept) > maximum:
            self.add(field, f"is longer than {maximum} characters", "TOO_LONG")
        else:
            return kept
        return ""

    def integer(self, field: str, value: int, *, minimum: int, maximum: int) -> int:
        """Check a number's bounds."""
        if minimum <= value <= maximum:
            return value
        self.add(field, f"must be from {minimum} to {maximum}", "OUT_OF_BOUNDS")
        return minimum

    def duration(
        self,
        field: str,
        value: Duration,
        *,
        minimum: timedelta = timedelta(0),
        maximum: timedelta = timedelta(days=366),
    ) -> timedelta:
        """Parse a duration and check its bounds."""
        try:
            parsed = value.ToTimedelta()
        except (ValueError, OverflowError):
            self.add(field, "is not a duration", "INVALID_DURATION")
            return minimum
        if minimum <= parsed <= maximum:
            return parsed
        self.add(
            field,
            f"must be from {minimum.total_seconds():g} to {maximum.total_seconds():g} seconds",
            "OUT_OF_BOUNDS",
        )
        return minimum

    def timestamp(self, field: str, value: Timestamp) -> datetime:
        """Parse a point in time."""
        try:
            return value.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError):
            self.add(field, "is not a point in time", "INVALID_TIMESTAMP")
            return EPOCH

    def enum(self, field: str, value: int, known: Mapping[int, E]) -> E:
        """Turn a proto enum's number into ours; the unspecified and unknown are refused."""
        parsed = known.get(value)
        if parsed is not None:
            return parsed
        names = ", ".join(each.value for each in known.values())
        self.add(field, f"must be one of: {names}", "INVALID_ENUM")
        return next(iter(known.values()))

    def json_object(self, field: str, text: str, *, maximum: int = 65_536) -> dict[str, Any]:
        """Parse a JSON object; an empty text is an empty object."""
        if len(text.encode()) > maximum:
            self.add(field, f"is larger than {maximum} bytes", "TOO_LONG")
            return {}
        try:
            parsed = plain_json.loads(text or "{}")
        except (ValueError, RecursionError):
            self.add(field, "is not JSON", "INVALID_JSON")
            return {}
        if not isinstance(parsed, dict):
            self.add(field, "is not a JSON object", "INVALID_JSON")
            return {}
        if not plain_json.storable(parsed):
            self.add(field, "contains a NUL character or half of a surrogate pair", "INVALID_TEXT")
            return {}
        return parsed


def to_timestamp(moment: datetime | None) -> Timestamp | None:
    """Turn a row's time into a message; None stays unset."""
    if moment is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def to_duration(length: timedelta) -> Duration:
    """Turn a length of time into a message."""
    message = Duration()
    message.FromTimedelta(length)
    return message
