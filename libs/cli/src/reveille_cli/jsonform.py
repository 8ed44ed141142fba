"""Messages as plain values: what `-o json` prints, and what a table takes its cells from.

Original field names, every field present; enums in lower case without their prefix and null when
unspecified; times in RFC 3339; bytes that hold JSON as that JSON, hashes in hexadecimal.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

_UNSPECIFIED = "UNSPECIFIED"
_TIMES = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})
_STRUCT = "google.protobuf.Struct"
# Of `bytes` fields only the name tells what they hold.
_JSON_FIELDS = frozenset({"result"})
_HASH_SUFFIX = "_sha256"


def plain(message: Message) -> dict[str, Any]:
    """Return a message as values that `json` can write."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def enum_prefix(enum: EnumDescriptor) -> str:
    """Return what the names of an enum's values begin with."""
    return str(enum.values[0].name).removesuffix(_UNSPECIFIED)


def enum_words(enum: EnumDescriptor) -> dict[str, int]:
    """Return an enum's values as people write them, unspecified left out."""
    prefix = enum_prefix(enum)
    return {
        value.name.removeprefix(prefix).lower(): value.number
        for value in enum.values
        if value.number != 0
    }


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {str(key): each for key, each in sorted(value.items())}
    if field.is_repeated:
        return [_single(each, field) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single(value, field)


def _single(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        kind = field.message_type.full_name
        if kind in _TIMES:
            return value.ToJsonString()
        return MessageToDict(value) if kind == _STRUCT else plain(value)
    if field.enum_type is not None:
        return _enum(value, field.enum_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _bytes(value, field.name)
    return value


def _enum(number: int, enum: EnumDescriptor) -> str | None:
    if number == 0:
        return None
    known = enum.values_by_number.get(number)
    prefix = enum_prefix(enum)
    # A value from a newer release keeps its number.
    return (known.name.removeprefix(prefix) if known else f"{prefix}{number}").lower()


def _bytes(value: bytes, name: str) -> Any:
    if name.endswith(_HASH_SUFFIX):
        return value.hex()
    if name in _JSON_FIELDS:
        if not value:
            return None
        try:
            return json.loads(value)
        except ValueError:
            return value.decode(errors="replace")
    return base64.b64encode(value).decode()


def is_empty(value: Any) -> bool:
    """Tell whether a field says nothing, so that a table may leave it out."""
    return value is None or (isinstance(value, str | Mapping | Sequence) and not value)
