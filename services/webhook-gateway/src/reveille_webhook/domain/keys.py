"""Secrets, signatures and times as they are written; what is written otherwise is refused.

Each decoder takes one spelling only, so that no byte of a credential can be changed unnoticed.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import datetime
from typing import assert_never

from reveille_webhook.domain.scheme import Encoding, Key, Unit

# What a secret of Meta's begins with that is a verify token.
VERIFY = b"verify_"
_HEX = re.compile(rb"(?:[0-9a-f]{2})+")
_DIGITS = re.compile(rb"[0-9]{1,16}")


def key_of(secret: bytes, key: Key) -> bytes | None:
    """Make a key of a secret; None for one that cannot be used, an empty one included."""
    match key:
        case Key.TEXT:
            made: bytes | None = secret
        case Key.META:
            made = None if secret.startswith(VERIFY) else secret
        case Key.HEX:
            made = _unhex(secret.lower())
        case Key.BASE64 | Key.SPKI:
            made = _lenient(secret)
        case Key.WHSEC:
            made = _lenient(secret.removeprefix(b"whsec_"))
        case Key.WHPK:
            made = _lenient(secret.removeprefix(b"whpk_")) if secret[:5] == b"whpk_" else None
        case _:
            assert_never(key)
    return made or None


def signature_of(written: bytes, encoding: Encoding) -> bytes | None:
    """Read a signature; None when it is not written as it has to be."""
    match encoding:
        case Encoding.PLAIN:
            return written or None
        case Encoding.HEX:
            return _unhex(written)
        case Encoding.BASE64:
            try:
                read = base64.b64decode(written, validate=True)
            except (binascii.Error, ValueError):
                return None
            return read if read and base64.b64encode(read) == written else None
        case _:
            assert_never(encoding)


def write(signature: bytes, encoding: Encoding) -> bytes:
    """Write a signature."""
    match encoding:
        case Encoding.PLAIN:
            return signature
        case Encoding.HEX:
            return signature.hex().encode()
        case Encoding.BASE64:
            return base64.b64encode(signature)
        case _:
            assert_never(encoding)


def seconds_of(written: bytes, unit: Unit) -> float | None:
    """Read a point in time, in Unix seconds; None when it is not written as it has to be."""
    if unit is Unit.ISO and _DIGITS.fullmatch(written) is None:
        try:
            moment = datetime.fromisoformat(written.decode("ascii"))
        except ValueError:
            return None
        return moment.timestamp() if moment.tzinfo is not None else None
    if _DIGITS.fullmatch(written) is None:
        return None
    return int(written) / 1000 if unit is Unit.MILLISECONDS else int(written)


def _unhex(written: bytes) -> bytes | None:
    return bytes.fromhex(written.decode("ascii")) if _HEX.fullmatch(written) else None


def _lenient(written: bytes) -> bytes | None:
    # People copy keys with and without their padding.
    bare = written.strip().rstrip(b"=")
    try:
        return base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
