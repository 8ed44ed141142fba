"""Bearer tokens: keys, minting and verification (JWT signed with Ed25519).

A key belongs to one issuer, and an issuer may mint only what `may_mint` allows: the operator's
key makes tokens for users, services and runtimes; a service's own key makes tokens that stand for
that service, and heartbeat's also those of runs. Who has a key of its own stands for itself only
by that key: the operator's makes service tokens for other names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from reveille_runtime.access import Actor, CallerKind, Role
from reveille_runtime.errors import Unauthenticated

ALGORITHM = "EdDSA"
OPERATOR_ISSUER = "operator"
RUN_ISSUER = "heartbeat"
DEFAULT_LIFETIME = 3600.0
LEEWAY = 30.0
"""Seconds that two clocks may differ: so much longer a token is accepted."""
MAX_TOKEN_LENGTH = 16_384


class KeyFileError(Exception):
    """A key file is missing or is not what it should be."""


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key and the issuer it speaks for."""

    kid: str
    issuer: str
    public_key: bytes


def may_mint(issuer: str, kind: CallerKind, subject: str) -> bool:
    """Tell whether an issuer's key may sign a token of this kind for this subject."""
    if issuer == OPERATOR_ISSUER:
        return kind is not CallerKind.RUN
    if kind is CallerKind.SERVICE:
        return subject == issuer
    return kind is CallerKind.RUN and issuer == RUN_ISSUER


def key_id(public_key: bytes) -> str:
    """Derive a key's id from the key itself, so that no file has to carry it."""
    return base64.urlsafe_b64encode(hashlib.sha256(public_key).digest())[:16].decode()


def generate_key(path: Path, issuer: str) -> TrustedKey:
    """Write a new private key (0600, never over an existing file); return its public half."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
    return _trusted(key, issuer)


def trusted_key_of(path: Path, issuer: str) -> TrustedKey:
    """Return the public half of a private key file."""
    return _trusted(_load_private_key(path), issuer)


def save_trusted_keys(path: Path, keys: Iterable[TrustedKey]) -> None:
    """Write the file that verifiers read, replacing it whole."""
    document = {
        "keys": [
            {
                "kid": key.kid,
                "issuer": key.issuer,
                "public_key": base64.b64encode(key.public_key).decode(),
            }
            for key in keys
        ]
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


def load_trusted_keys(path: Path) -> tuple[TrustedKey, ...]:
    """Read the trusted keys file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        keys = tuple(
            TrustedKey(
                kid=str(entry["kid"]),
                issuer=str(entry["issuer"]),
                public_key=base64.b64decode(entry["public_key"], validate=True),
            )
            for entry in document["keys"]
        )
        for key in keys:
            Ed25519PublicKey.from_public_bytes(key.public_key)
    except OSError as error:
        raise KeyFileError(f"cannot read the trusted keys file {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise KeyFileError(
            f'{path} is not a trusted keys file: it needs {{"keys": [{{"kid", "issuer", '
            f'"public_key" (base64 of 32 bytes)}}]}} ({error!r})'
        ) from error
    return keys


class TokenMinter:
    """Signs tokens in the name of one issuer."""

    def __init__(self, private_key_file: Path, issuer: str) -> None:
        self._key = _load_private_key(private_key_file)
        self._kid = _trusted(self._key, issuer).kid
        self.issuer = issuer
        self._service_token = ""
        self._service_token_since = self._service_token_until = 0.0

    def mint(
        self,
        kind: CallerKind,
        subject: str,
        *,
        lifetime: float = DEFAULT_LIFETIME,
        roles: Mapping[UUID, Role] | None = None,
        operator: bool = False,
        workspace_id: UUID | None = None,
        run_id: UUID | None = None,
        now: float | None = None,
    ) -> str:
        """Return a signed token."""
        if not may_mint(self.issuer, kind, subject):
            raise ValueError(
                f"issuer {self.issuer} may not mint a {kind.value} token for {subject}"
            )
        issued = time.time() if now is None else now
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "sub": subject,
            "kind": kind.value,
            "iat": int(issued),
            "exp": int(issued + lifetime),
        }
        if roles:
            claims["roles"] = {str(workspace): role.value for workspace, role in roles.items()}
        if operator:
            claims["operator"] = True
        if workspace_id is not None:
            claims["workspace_id"] = str(workspace_id)
        if run_id is not None:
            claims["run_id"] = str(run_id)
        return jwt.encode(claims, self._key, algorithm=ALGORITHM, headers={"kid": self._kid})

    def service_token(self, *, now: float | None = None) -> str:
        """Return this service's own token, made anew once half of its life is over.

        Also when the clock was set back: nobody takes a token from the future.
        """
        moment = time.time() if now is None else now
        if not self._service_token_since <= moment < self._service_token_until:
            self._service_token = self.mint(CallerKind.SERVICE, self.issuer, now=moment)
            self._service_token_since = moment
            self._service_token_until = moment + DEFAULT_LIFETIME / 2
        return self._service_token


class TokenVerifier:
    """Turns a token into an `Actor`, or says why not.

    Checked tokens are kept until they expire, in a bounded cache: a signature costs some hundred
    times a look-up.
    """

    def __init__(
        self, trusted: Iterable[TrustedKey], *, leeway: float = LEEWAY, cache_size: int = 4096
    ) -> None:
        self._keys = {
            key.kid: (key.issuer, Ed25519PublicKey.from_public_bytes(key.public_key))
            for key in trusted
        }
        self._issuers = frozenset(issuer for issuer, _ in self._keys.values())
        self._leeway = leeway
        self._cache_size = cache_size
        self._cache: OrderedDict[str, tuple[Actor, float]] = OrderedDict()

    def verify(self, token: str, *, now: float | None = None) -> Actor:
        """Return the caller a token stands for; raise `Unauthenticated` otherwise."""
        moment = time.time() if now is None else now
        cached = self._cache.get(token)
        if cached is None:
            actor, issued, expires = self._decode(token)
            if issued > moment + self._leeway:
                raise _invalid("the token was issued in the future; compare the clocks")
        else:
            self._cache.move_to_end(token)
            actor, expires = cached
        if moment >= expires + self._leeway:
            self._cache.pop(token, None)
            raise Unauthenticated("TOKEN_EXPIRED", "the token has expired; get a new one")
        if cached is None:
            self._cache[token] = (actor, expires)
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return actor

    def _decode(self, token: str) -> tuple[Actor, float, float]:
        if len(token) > MAX_TOKEN_LENGTH:
            raise _invalid("the token is too long")
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            if not isinstance(kid, str) or kid not in self._keys:
                raise _invalid("the token is signed with a key that is not trusted here")
            issuer, key = self._keys[kid]
            claims = jwt.decode(
                token,
                key,
                algorithms=[ALGORITHM],
                issuer=issuer,
                # Times are judged by verify(), which takes `now` as a parameter.
                options={
                    "require": ["iss", "sub", "exp", "iat"],
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                    "verify_aud": False,
                },
            )
            actor = _actor(claims)
            times = (float(claims["iat"]), float(claims["exp"]))
        except jwt.PyJWTError as error:
            raise _invalid("the token is not valid") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _invalid("a claim of the token is malformed") from error
        if not may_mint(issuer, actor.kind, actor.subject):
            raise _invalid(f"issuer {issuer} may not vouch for a {actor.kind.value}")
        # Otherwise one key could speak for every service, and the others would prove nothing.
        if actor.kind is CallerKind.SERVICE and actor.subject in self._issuers - {issuer}:
            raise _invalid(f"{actor.subject} vouches for itself, with a key of its own")
        return actor, *times


def _actor(claims: Mapping[str, Any]) -> Actor:
    workspace_id, run_id = claims.get("workspace_id"), claims.get("run_id")
    kind = CallerKind(claims["kind"])
    operator = claims.get("operator", False)
    if not isinstance(operator, bool):
        raise TypeError("operator")
    if kind is CallerKind.RUN and (workspace_id is None or run_id is None):
        raise KeyError("run_id")
    return Actor(
        kind=kind,
        subject=str(claims["sub"]),
        issuer=str(claims["iss"]),
        roles={UUID(key): Role(value) for key, value in claims.get("roles", {}).items()},
        operator=operator and kind is CallerKind.USER,
        workspace_id=None if workspace_id is None else UUID(workspace_id),
        run_id=None if run_id is None else UUID(run_id),
    )


def _invalid(message: str) -> Unauthenticated:
    return Unauthenticated("TOKEN_INVALID", message)


def _trusted(key: Ed25519PrivateKey, issuer: str) -> TrustedKey:
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return TrustedKey(kid=key_id(raw), issuer=issuer, public_key=raw)


def _load_private_key(path: Path) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise KeyFileError(f"cannot read the private key {path}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise KeyFileError(f"{path} is not an unencrypted PEM private key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path} holds another kind of key; Ed25519 is needed")
    return key
