"""Verification of a signature over raw bytes; it answers, whatever it is given."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import assert_never

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from reveille_webhook.domain.document import document_of
from reveille_webhook.domain.keys import key_of, seconds_of, signature_of
from reveille_webhook.domain.provider import Provider
from reveille_webhook.domain.request import Request, at_path, values_of
from reveille_webhook.domain.scheme import (
    Algorithm,
    Header,
    Item,
    Kind,
    Path,
    Scheme,
    Stamp,
    fields_of,
    parts_of,
)
from reveille_webhook.domain.states import SignatureState
from reveille_webhook.domain.verdict import INVALID, MISSING, Verdict

_DIGESTS = {
    Algorithm.HMAC_SHA1: hashlib.sha1,
    Algorithm.HMAC_SHA256: hashlib.sha256,
    Algorithm.HMAC_SHA512: hashlib.sha512,
}
# More signatures than any sender rolls keys for; each costs time.
MOST_SIGNATURES = 32
# Those made with a private key cost by far more, and the whole message each.
MOST_ASYMMETRIC = 4
_ASYMMETRIC = frozenset({Algorithm.ED25519, Algorithm.ECDSA_P256})
# An id that holds a time between dots: what is signed could be read as another id, time and body.
_HOLDS_TIME = re.compile(rb"\.[0-9]{10,16}\.")
# What stands apart from the body in every message that is signed, or is no content.
_APART = frozenset({"body", "timestamp", "id", "secret"})


def verify(provider: Provider, secrets: Sequence[bytes], request: Request, now: float) -> Verdict:
    """Compare the request's signatures with each secret's; also tell which secret matched.

    An endpoint whose secrets have all expired passes none: it still demands a signature.
    """
    if provider.special is not None:
        return provider.special(tuple(secrets), request, now)
    scheme = scheme_of(provider, request)
    return MISSING if scheme is None else verify_scheme(scheme, secrets, request, now)


def scheme_of(provider: Provider, request: Request) -> Scheme | None:
    """Give the scheme that a request is signed by: the first whose signature is there."""
    return next((scheme for scheme in provider.schemes if _counts(scheme, request)), None)


def verify_scheme(
    scheme: Scheme, secrets: Sequence[bytes], request: Request, now: float
) -> Verdict:
    """Verify by one scheme."""
    values = [each for source in scheme.sources for each in _values(source, request)]
    if not any(values):
        return MISSING
    items = _items(scheme, request)
    if items is None:
        return INVALID
    found = _fields(scheme, request, items, now)
    given = _given(scheme, items)
    if found is None or not given:
        return INVALID
    matched = None
    # Every secret is tried, so that the time says nothing about which one it was.
    for index, secret in enumerate(secrets):
        for kind, signatures in given:
            if _match(kind, secret, signatures, scheme, found):
                matched = index
    if matched is None:
        return INVALID
    covers_body, rest = _vouched(scheme, found)
    return Verdict(SignatureState.VALID, matched, rest, covers_body)


def expected(scheme: Scheme, kind: Kind, secret: bytes, found: dict[str, bytes]) -> bytes | None:
    """Make the signature that a secret gives, where the secret can make one."""
    key = key_of(secret, kind.key)
    if key is None:
        return None
    match kind.algorithm:
        case Algorithm.HMAC_SHA1 | Algorithm.HMAC_SHA256 | Algorithm.HMAC_SHA512:
            return hmac.digest(key, _message(scheme, found, key), _DIGESTS[kind.algorithm])
        case Algorithm.SHA256:
            return hashlib.sha256(_message(scheme, found, key)).digest()
        case Algorithm.EQUALS:
            return key
        case Algorithm.ED25519 | Algorithm.ECDSA_P256:
            return None
        case _:
            assert_never(kind.algorithm)


def _counts(scheme: Scheme, request: Request) -> bool:
    if scheme.when is not None:
        name, value = scheme.when
        if values_of(request.headers, name) != [value.encode()]:
            return False
    return any(any(_values(source, request)) for source in scheme.sources)


def _values(source: Header | Path, request: Request) -> list[bytes]:
    if isinstance(source, Header):
        return values_of(request.headers, source.name)
    found = at_path(document_of(request.body), source.path)
    return [found.encode("utf-8", "replace")] if isinstance(found, str) else []


def _items(scheme: Scheme, request: Request) -> list[bytes] | None:
    """List what stands in the signature's places; None when it is ambiguous, or too much."""
    items: list[bytes] = []
    for source in scheme.sources:
        values = _values(source, request)
        # A header that comes twice leaves open which one was meant.
        if len(values) > 1:
            return None
        for value in values:
            items += value.split(scheme.separator.encode()) if scheme.separator else [value]
    return items if len(items) <= MOST_SIGNATURES else None


def _given(scheme: Scheme, items: Sequence[bytes]) -> list[tuple[Kind, list[bytes]]]:
    """Read the signatures of each kind; none at all when there are too many of a dear one."""
    given = []
    for kind in scheme.kinds:
        prefix = kind.prefix.encode()
        signatures = []
        for item in items:
            if item.startswith(prefix):
                signature = signature_of(item[len(prefix) :], scheme.encoding)
                if signature is not None:
                    signatures.append(signature)
        if kind.algorithm in _ASYMMETRIC and len(signatures) > MOST_ASYMMETRIC:
            return []
        if signatures:
            given.append((kind, signatures))
    return given


def _fields(
    scheme: Scheme, request: Request, items: Sequence[bytes], now: float
) -> dict[str, bytes] | None:
    """Find what is signed; None when something is not there, or the time is off."""
    found = {
        "body": request.body,
        "method": request.method.encode(),
        "url": request.url.encode("utf-8", "replace"),
    }
    if scheme.id is not None:
        ids = _values(scheme.id, request)
        if len(ids) != 1 or not ids[0] or _HOLDS_TIME.search(ids[0]):
            return None
        found["id"] = ids[0]
    if scheme.stamp is not None:
        written = stamp_of(scheme.stamp, request, items)
        moment = None if written is None else seconds_of(written, scheme.stamp.unit)
        if written is None or moment is None:
            return None
        if not -scheme.stamp.past <= moment - now <= scheme.stamp.future:
            return None
        found["timestamp"] = written
    return found


def stamp_of(stamp: Stamp, request: Request, items: Sequence[bytes]) -> bytes | None:
    """Find the time that is signed; None when there is none, or more than one."""
    source = stamp.source
    match source:
        case Item():
            prefix = source.prefix.encode()
            values = [each[len(prefix) :] for each in items if each.startswith(prefix)]
        case Header():
            values = values_of(request.headers, source.name)
        case Path():
            at = at_path(document_of(request.body), source.path)
            is_number = isinstance(at, int) and not isinstance(at, bool)
            values = (
                [str(at).encode("utf-8", "replace")] if is_number or isinstance(at, str) else []
            )
        case _:
            assert_never(source)
    return values[0] if len(values) == 1 else None


def _message(scheme: Scheme, found: dict[str, bytes], secret: bytes) -> bytes:
    if scheme.message == "{body}":
        return found["body"]
    return b"".join(
        text + (secret if field == "secret" else found[field] if field else b"")
        for text, field in parts_of(scheme.message)
    )


def _vouched(scheme: Scheme, found: dict[str, bytes]) -> tuple[bool, bytes]:
    """Tell whether the body as it came tells the signed content apart, and what else does.

    Beside a body a time does not: tried again, the same content is signed anew. An id does: with
    another one it is another event. An address stands next to the body with nothing between them,
    so that what could be moved from one into the other tells only together.
    """
    fields = fields_of(scheme)
    if "body" not in fields:
        return False, _message(scheme, found, b"")
    if fields <= _APART:
        return True, found.get("id", b"")
    return False, _message(scheme, {**found, "timestamp": b""}, b"")


def _match(
    kind: Kind, secret: bytes, signatures: list[bytes], scheme: Scheme, found: dict[str, bytes]
) -> bool:
    """Tell whether one of several is the secret's: what it gives is made once, however many."""
    if kind.algorithm not in _ASYMMETRIC:
        wanted = expected(scheme, kind, secret, found)
        if wanted is None:
            return False
        return any(hmac.compare_digest(wanted, each) for each in signatures)
    key = key_of(secret, kind.key)
    if key is None:
        return False
    message = _message(scheme, found, b"")
    return any(_verifies(kind, key, each, message) for each in signatures)


def _verifies(kind: Kind, key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        if kind.algorithm is Algorithm.ED25519:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
            return True
        public = load_der_public_key(key)
        if not isinstance(public, EllipticCurvePublicKey):
            return False
        public.verify(signature, message, ECDSA(SHA256()))
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True
