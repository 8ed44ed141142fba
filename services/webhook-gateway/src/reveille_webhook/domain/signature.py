"""Verification of a signature over raw bytes; it answers, whatever it is given."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import assert_never

from reveille_webhook.domain.request import Headers, values_of
from reveille_webhook.domain.scheme import Algorithm, Encoding, SignatureScheme, SignedMessage
from reveille_webhook.domain.states import SignatureState

# bytes.fromhex would also take spaces.
_HEX = re.compile(rb"(?:[0-9a-fA-F]{2})+")


def verify(
    scheme: SignatureScheme, secrets: Sequence[bytes], headers: Headers, body: bytes
) -> tuple[SignatureState, int | None]:
    """Compare the request's signature with each secret's; also tell which secret matched.

    An endpoint whose secrets have all expired passes none: it still demands a signature.
    """
    sent = values_of(headers, scheme.header)
    if not any(sent):
        return SignatureState.MISSING, None
    # A header that comes twice leaves open which one was meant.
    given = _decoded(scheme, sent[0]) if len(sent) == 1 else None
    message = _message(scheme, body)
    matched = None
    # Every secret is tried, so that the time says nothing about which one it was.
    for index, secret in enumerate(secrets):
        expected = _sign(scheme.algorithm, secret, message)
        if hmac.compare_digest(expected, given or b"") and secret:
            matched = index
    if matched is None:
        return SignatureState.INVALID, None
    return SignatureState.VALID, matched


def _decoded(scheme: SignatureScheme, value: bytes) -> bytes | None:
    prefix = scheme.prefix.encode("ascii")
    if not value.startswith(prefix):
        return None
    encoded = value[len(prefix) :]
    match scheme.encoding:
        case Encoding.HEX:
            return bytes.fromhex(encoded.decode("ascii")) if _HEX.fullmatch(encoded) else None
        case _:
            assert_never(scheme.encoding)


def _message(scheme: SignatureScheme, body: bytes) -> bytes:
    match scheme.message:
        case SignedMessage.BODY:
            return body
        case _:
            assert_never(scheme.message)


def _sign(algorithm: Algorithm, secret: bytes, message: bytes) -> bytes:
    match algorithm:
        case Algorithm.HMAC_SHA256:
            return hmac.digest(secret, message, hashlib.sha256)
        case _:
            assert_never(algorithm)
