"""Bodies read as what their content type says. Never raises, and never changes a byte that is kept.

What is read here serves to name the event; the agent gets the bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from reveille_runtime.plain_json import holds_at_most
from reveille_webhook.domain.document import MOST_FIELDS, MOST_STRAYS, form_of
from reveille_webhook.domain.json_syntax import is_json

_LONGEST_NUMBER = 4000
# More than any sender's event has; what has more is not read, whoever vouches for it.
MOST_MEMBERS = 100_000
_TOO_MUCH = f"the body holds more than {MOST_MEMBERS} values"
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
        return _json(body, otherwise=_TOO_MUCH if always_json else "")
    # Where nobody says what it is, what looks like JSON is read as such, and nothing is broken.
    found = _json(body).document if holds_id or not kind else {}
    if kind == FORM and not found:
        return _form(body)
    return Parsed(found)


def _json(body: bytes, otherwise: str = "") -> Parsed:
    """Read JSON; `otherwise` is what is wrong with one that is not read, if anything is."""
    if not body.strip():
        return Parsed({}, "the body is empty")
    if not holds_at_most(MOST_MEMBERS, body):
        return Parsed({}, otherwise)
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
    fields = form_of(body)
    if fields is None:
        return Parsed(
            {},
            f"the form has more than {MOST_FIELDS} fields, or {MOST_STRAYS} percent signs that "
            "escape nothing",
        )
    # Of fields of one name the first counts.
    found = dict(reversed(fields))
    if b"payload" in found:
        # A form says nothing of its characters, and what is no UTF-8 breaks none of the others.
        return _json(found[b"payload"].decode("utf-8", "replace").encode())
    names = ((name.decode("utf-8", "replace"), value) for name, value in found.items())
    return Parsed({name: value.decode("utf-8", "replace") for name, value in names})
