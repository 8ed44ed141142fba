"""Requests signed and named as a sender would, from what the gateway tells of its rows."""

from __future__ import annotations

import base64
import binascii
import hmac
import http.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, refused

TIMEOUT = 30.0
_MOST = 1 << 20
_DIGESTS = {"hmac_sha1": "sha1", "hmac_sha256": "sha256", "hmac_sha512": "sha512"}


@dataclass(frozen=True, slots=True)
class Said:
    """What came back."""

    status: int
    body: bytes
    content_type: str


def sign(
    scheme: Any,
    header: str,
    secret: bytes,
    body: bytes,
    *,
    url: str,
    moment: float,
    event_id: str,
) -> dict[str, str]:
    """Make the headers that sign a body; the scheme is the contract's SignatureScheme.

    Raises:
        Failure: the scheme cannot sign with what we have.
    """
    if scheme.algorithm == "equals":
        return {header: secret.decode("utf-8", "replace")}
    digest = _DIGESTS.get(scheme.algorithm)
    if digest is None:
        raise refused("provider", "only its sender can sign: the hook holds a public key")
    stamp = _stamp(scheme.timestamp_unit, moment)
    if "{url}" in scheme.message and not url:
        raise refused("url", "is needed: this sender signs the hook's address")
    fields = {
        "body": body,
        "timestamp": stamp.encode(),
        "id": event_id.encode(),
        "url": url.encode(),
        "method": b"POST",
    }
    signature = hmac.digest(_key(scheme.key, secret), _message(scheme.message, fields), digest)
    encoded = signature.hex() if scheme.encoding == "hex" else base64.b64encode(signature).decode()
    value = scheme.prefix + encoded
    if scheme.timestamp_prefix:
        value = f"{scheme.timestamp_prefix}{stamp}{scheme.separator}{value}"
    headers = {header: value}
    if scheme.timestamp_header:
        headers[scheme.timestamp_header] = stamp
    if scheme.id_header:
        headers[scheme.id_header] = event_id
    return headers


def named(row: Any, *, event: str | None, event_id: str | None) -> dict[str, str]:
    """Make the headers that name an event and its id; the row is the contract's Provider.

    Raises:
        Failure: the sender does not name it in a header, or no header can hold it.
    """
    headers: dict[str, str] = {}
    for option, value, places in (
        ("event", event, row.event_places),
        ("id", event_id, row.dedupe_places),
    ):
        if not value:
            continue
        if not places:
            raise refused(option, f"{row.name} gives none, so no option can set it")
        # A header behind other places would count only where those hold nothing.
        if not places[0].header:
            found = ", else ".join(map(_place, places))
            raise refused(option, f"{row.name} takes it from {found}, so no option can set it")
        if not (value.isascii() and value.isprintable()):
            raise refused(option, "goes into a header: it must be printable ASCII")
        headers[places[0].header] = value
    return headers


def post(url: str, body: bytes, headers: Mapping[str, str]) -> Said:
    """Post a body, and give what came back.

    Raises:
        Failure: nobody answered.
    """
    parts = urlsplit(url)
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    if parts.scheme not in kinds or not parts.hostname:
        raise refused("url", "must be an http or https address")
    connection = kinds[parts.scheme](parts.hostname, parts.port, timeout=TIMEOUT)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target or "/", body, dict(headers))
        answer = connection.getresponse()
        return Said(answer.status, answer.read(_MOST), answer.headers.get_content_type())
    except (OSError, http.client.HTTPException) as error:
        raise Failure(
            "service_unreachable",
            f"{parts.hostname} did not answer: {type(error).__name__}",
            ExitCode.UNAVAILABLE,
        ) from error
    finally:
        connection.close()


def header_pairs(texts: Sequence[str]) -> dict[str, str]:
    """Read `Name: value` texts."""
    pairs = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise refused("header", f"{text!r} is no header: write it as Name: value")
        pairs[name.strip()] = value.strip()
    return pairs


def _place(place: Any) -> str:
    """Say where a value is, as the page of senders does."""
    if place.body_path:
        return f"body.{place.body_path}"
    if place.body_hash:
        return "the hash of the body"
    return place.header or "several parts of the request"


def _stamp(unit: str, moment: float) -> str:
    if unit == "milliseconds":
        return str(int(moment * 1000))
    if unit == "iso":
        return datetime.fromtimestamp(int(moment), UTC).isoformat().replace("+00:00", "Z")
    return str(int(moment))


def _key(kind: str, secret: bytes) -> bytes:
    try:
        if kind == "hex":
            return bytes.fromhex(secret.decode("ascii"))
        if kind in {"base64", "whsec"}:
            bare = secret.removeprefix(b"whsec_") if kind == "whsec" else secret
            return base64.b64decode(bare, validate=True)
    except (ValueError, binascii.Error) as error:
        raise refused("signing_secret", f"this sender's secrets are written as {kind}") from error
    return secret


def _message(template: str, fields: Mapping[str, bytes]) -> bytes:
    made = b""
    while template:
        before, opened, rest = template.partition("{")
        name, _, template = rest.partition("}")
        made += before.encode() + (fields[name] if opened else b"")
    return made
