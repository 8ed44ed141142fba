"""Text from the command line as values of request fields."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from reveille_cli.failures import refused
from reveille_cli.jsonform import enum_words
from reveille_cli.times import duration, instant

STDIN = "-"


def read_file(name: str, field: str) -> bytes:
    """Read a file, or stdin for `-`."""
    if name == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise refused(field, f"cannot read {name}: {error.strerror}") from error


def json_object(text: str, field: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        read = json.loads(text)
    except ValueError as error:
        raise refused(field, f"this is no JSON: {error}") from error
    if not isinstance(read, dict):
        raise refused(field, "a JSON object is needed, such as {}")
    return read


def command_words(text: str, field: str) -> list[str]:
    """Split a command line as a shell would, without running one."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise refused(field, f"cannot split {text!r}: {error}") from error
    if not words:
        raise refused(field, "a command is needed, such as 'python3 agent.py'")
    return words


def assign(request: Message, path: str, text: Any, name: str) -> None:
    """Set a field of a request, by its dotted path, from what was typed for `name`."""
    *parents, last = path.split(".")
    for parent in parents:
        request = getattr(request, parent)
        # Choosing a kind counts even where nothing of it is set.
        request.SetInParent()
    field = request.DESCRIPTOR.fields_by_name[last]
    if field.is_repeated:
        getattr(request, last).extend(_single(each, field, name) for each in text)
        return
    if field.message_type is None:
        setattr(request, last, _single(text, field, name))
        return
    target = getattr(request, last)
    target.SetInParent()
    _MESSAGES[field.message_type.full_name](target, text, name)


def assign_json(target: Message, text: str, name: str) -> None:
    """Fill a message from a JSON object; its enums are written as they are printed."""
    read = json_object(text, name)
    target.SetInParent()
    try:
        ParseDict(_with_numbers(read, target.DESCRIPTOR, name), target)
    except ParseError as error:
        raise refused(name, str(error)) from error


def _with_numbers(read: Mapping[str, Any], message: Any, name: str) -> dict[str, Any]:
    """Put numbers for the words of enums, which the contract's JSON spells otherwise."""
    values = dict(read)
    for key, value in read.items():
        field = message.fields_by_name.get(key) or message.fields_by_camelcase_name.get(key)
        if field is None:
            known = ", ".join(each.name for each in message.fields)
            raise refused(name, f"there is no {key!r}; there are {known}")
        if field.is_repeated:
            continue
        if field.enum_type is not None and not _is_spelled_out(value, field.enum_type):
            values[key] = _single(value, field, f"{name}.{key}")
        elif field.message_type is not None and isinstance(value, dict):
            values[key] = _with_numbers(value, field.message_type, f"{name}.{key}")
    return values


def _is_spelled_out(value: object, enum: Any) -> bool:
    return isinstance(value, str) and value in enum.values_by_name


def field_of(message: Any, path: str) -> FieldDescriptor:
    """Find the descriptor of a dotted path; KeyError where the contract has no such field."""
    *parents, last = path.split(".")
    for parent in parents:
        message = message.fields_by_name[parent].message_type
    field: FieldDescriptor = message.fields_by_name[last]
    return field


def _single(text: Any, field: Any, name: str) -> Any:
    if field.enum_type is not None:
        words = enum_words(field.enum_type)
        if not isinstance(text, str) or text not in words:
            raise refused(name, f"{text!r} is none of {', '.join(words)}")
        return words[text]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return text if isinstance(text, bytes) else text.encode()
    if isinstance(text, bytes):
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise refused(name, "this is no UTF-8 text") from error
    return text


def _set_struct(target: Message, text: str | bytes, name: str) -> None:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    try:
        ParseDict(json_object(shown, name), target)
    except ParseError as error:
        raise refused(name, str(error)) from error


def _set_duration(target: Any, text: str, name: str) -> None:
    target.FromTimedelta(duration(text, name))


def _set_instant(target: Any, text: str, name: str) -> None:
    target.FromDatetime(instant(text, name))


_MESSAGES: Mapping[str, Callable[[Any, Any, str], None]] = {
    "google.protobuf.Struct": _set_struct,
    "google.protobuf.Duration": _set_duration,
    "google.protobuf.Timestamp": _set_instant,
}
