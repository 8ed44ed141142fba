"""Sealing what may not lie in the database in the clear: secrets, answers with a credential.

AES-256-GCM under keys from a file: one base64 key of 32 bytes a line, the first seals, all open, so
a key is rotated by putting a new line on top. What is sealed is bound to its place (`aad`, for
example table, column and row id): moved elsewhere it does not open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_BYTES = 32
_KEY_ID_BYTES = 4
_NONCE_BYTES = 12
_VERSION = b"\x01"
_HEADER_BYTES = len(_VERSION) + _KEY_ID_BYTES + _NONCE_BYTES


class KeyFileError(ValueError):
    """The key file cannot be used; the message never shows a key."""


class SealBroken(Exception):
    """What was sealed cannot be opened: another place, an unknown key, or changed bytes."""


def generate_key() -> str:
    """Make a line for a key file."""
    return base64.b64encode(os.urandom(_KEY_BYTES)).decode("ascii")


class Sealer:
    """Seals and opens with the keys of one file, read once.

    Raises:
        KeyFileError: the file is missing, empty, or holds something that is no key.
    """

    def __init__(self, key_file: Path) -> None:
        keys = _read_keys(key_file)
        self._keys = {_key_id(key): AESGCM(key) for key in keys}
        self._sealing = next(iter(self._keys))
        self._marking = hmac.digest(keys[0], b"reveille mark", "sha256")

    def seal(self, plaintext: bytes, aad: bytes) -> bytes:
        """Encrypt for one place."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._keys[self._sealing].encrypt(nonce, plaintext, _VERSION + aad)
        return _VERSION + self._sealing + nonce + sealed

    def mark(self, plaintext: bytes, aad: bytes) -> bytes:
        """Give 32 bytes that tell equal secrets of one place, and nothing to who lacks the key.

        A plain digest of a weak secret could be guessed. A key put on top changes all marks.
        """
        return hmac.digest(self._marking, len(aad).to_bytes(8) + aad + plaintext, "sha256")

    def open(self, sealed: bytes, aad: bytes) -> bytes:
        """Decrypt what was sealed for this place.

        Raises:
            SealBroken: it was not sealed for this place with one of these keys.
        """
        version = sealed[: len(_VERSION)]
        key_id = sealed[len(_VERSION) : len(_VERSION) + _KEY_ID_BYTES]
        nonce = sealed[len(_VERSION) + _KEY_ID_BYTES : _HEADER_BYTES]
        key = self._keys.get(key_id)
        if version != _VERSION or key is None or len(nonce) < _NONCE_BYTES:
            raise SealBroken("sealed in an unknown form or with a key that is not in the key file")
        try:
            return key.decrypt(nonce, sealed[_HEADER_BYTES:], _VERSION + aad)
        except InvalidTag:
            raise SealBroken("sealed for another place, or damaged") from None


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"reveille key id" + key).digest()[:_KEY_ID_BYTES]


def _read_keys(key_file: Path) -> list[bytes]:
    try:
        lines = key_file.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"{key_file}: {type(error).__name__}") from None
    keys = []
    for number, line in enumerate(lines, start=1):
        try:
            key = base64.b64decode(line, validate=True)
        except binascii.Error:
            key = b""
        if len(key) != _KEY_BYTES:
            raise KeyFileError(f"{key_file}: key {number} is not {_KEY_BYTES} bytes in base64")
        keys.append(key)
    if not keys:
        raise KeyFileError(f"{key_file}: holds no key")
    return keys
