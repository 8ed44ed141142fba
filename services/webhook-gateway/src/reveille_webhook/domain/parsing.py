"""Bodies read as what their content type says. Never raises, and never changes a byte that is kept.

What is read here serves to name the event; the agent gets the bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from reveille_webhook.domain.document import MOST_FIELDS
from reveille_webhook.domain.json_syntax import is_json

_LONGEST_NUMBER = 4000
FORM = "application/x-www-form-urlencoded"


def _integer(digits: str) -> int | float:
    # Python refuses to read integers of more digits than it would print.
    return int(digits) if len(digits) <= _LONGEST_NUMBER else float("inf")


_decode = json.JSONDecoder(parse_int=_integer).decode


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a body holds, as far as it can be read; `problem` says why it is broken."""

    document: Any
    problem: str = ""


def parse(
    body: bytes, content_type: str, *, always_json: bool = False, holds_id: bool = False
) -> Parsed:
    """Read a body: JSON and forms by their members, all else is opaque.

    In a body that holds its sender's id, JSON is found under any content type: nobody signs that,
    and whoever captured the request may not hide the id by it.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if always_json or kind == "application/json" or kind.endswith("+json"):
        return _json(body)
    # Where nobody says what it is, what looks like JSON is read as such, and nothing is broken.
    found = _json(body).document if holds_id or not kind else {}
    if kind == FORM and not found:
        return _form(body)
    return Parsed(found)


def _json(body: bytes) -> Parsed:
    if not body.strip():
        return Parsed({}, "the body is empty")
    try:
        # Finds UTF-8 with and without a byte order mark, UTF-16 and UTF-32.
        document = _decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except RecursionError:
        # Nested deeper than we read. Only an object or an array can be.
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        return Parsed({}, "" if is_json(text) else "the body is not JSON: deep inside")
    except ValueError as error:
        return Parsed({}, f"the body is not JSON: {type(error).__name__}")
    if isinstance(document, (dict, list)):
        return Parsed(document)
    return Parsed({}, "the body is JSON, but neither an object nor an array")


def _form(body: bytes) -> Parsed:
    text = body.decode("utf-8", "replace")
    try:
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return Parsed({}, f"the form has more than {MOST_FIELDS} fields")
    if "payload" in fields:
        return _json(fields["payload"][0].encode("utf-8", "surrogatepass"))
    return Parsed({name: values[0] for name, values in fields.items()})
