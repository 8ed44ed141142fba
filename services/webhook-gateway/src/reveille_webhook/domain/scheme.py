"""What a row of the provider table can say about how a sender signs."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class Algorithm(StrEnum):
    """How a signature is made."""

    HMAC_SHA1 = "hmac_sha1"
    HMAC_SHA256 = "hmac_sha256"
    HMAC_SHA512 = "hmac_sha512"
    # A plain hash of a message that holds the secret.
    SHA256 = "sha256"
    ED25519 = "ed25519"
    ECDSA_P256 = "ecdsa_p256"
    # The credential itself, the same in every request.
    EQUALS = "equals"


class Encoding(StrEnum):
    """How a signature is written; each has one spelling only."""

    HEX = "hex"
    BASE64 = "base64"
    # As it is.
    PLAIN = "plain"


class Key(StrEnum):
    """How a secret becomes a key."""

    TEXT = "text"
    BASE64 = "base64"
    HEX = "hex"
    # Standard Webhooks: the kind is told by a prefix, so that neither passes for the other.
    WHSEC = "whsec"
    WHPK = "whpk"
    # A public key in base64 of its DER.
    SPKI = "spki"
    # Meta: one that is told by its prefix is shown in a question, and signs nothing.
    META = "meta"


class Unit(StrEnum):
    """How a point in time is written."""

    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    # ISO 8601 with a zone, or seconds.
    ISO = "iso"


@dataclass(frozen=True, slots=True)
class Header:
    """A value that a request header holds; the name is in lower case."""

    name: str


@dataclass(frozen=True, slots=True)
class Path:
    """A value inside a body: names and positions, with dots between them."""

    path: str


@dataclass(frozen=True, slots=True)
class Item:
    """A value inside the signature's own list, after a prefix."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One way a signature of the list may be made; items of no known kind are passed over."""

    algorithm: Algorithm
    prefix: str = ""
    key: Key = Key.TEXT


@dataclass(frozen=True, slots=True)
class Stamp:
    """The time that is signed, and how far it may be from ours, in seconds."""

    source: Header | Path | Item
    unit: Unit = Unit.SECONDS
    past: int = 300
    future: int = 300


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a sender signs. The message is a template over the fields below."""

    # Where signatures are: any of these, each at most once.
    sources: tuple[Header | Path, ...]
    kinds: tuple[Kind, ...]
    encoding: Encoding = Encoding.HEX
    message: str = "{body}"
    separator: str = ""
    stamp: Stamp | None = None
    # What {id} stands for.
    id: Header | Path | None = None
    # The scheme counts only when this header holds this value.
    when: tuple[str, str] | None = None


FIELDS = frozenset({"body", "timestamp", "id", "method", "url", "secret"})


@lru_cache(maxsize=256)
def parts_of(template: str) -> tuple[tuple[bytes, str], ...]:
    """Split a template into pairs of plain bytes and the field after them (empty at the end)."""
    return tuple(
        (text.encode(), field or "") for text, field, _, _ in string.Formatter().parse(template)
    )


def fields_of(scheme: Scheme) -> frozenset[str]:
    """Name what a scheme signs."""
    return _fields_in(scheme.message)


@lru_cache(maxsize=256)
def _fields_in(template: str) -> frozenset[str]:
    return frozenset(field for _, field in parts_of(template) if field)


def scheme_problems(scheme: Scheme) -> list[str]:
    """Say what is wrong with a scheme; nothing, for one that can be used."""
    found = []
    fields = fields_of(scheme)
    if fields - FIELDS:
        found.append(f"a message is made of {sorted(FIELDS)}, not of {sorted(fields - FIELDS)}")
    if not scheme.sources or not scheme.kinds:
        found.append("nothing says where a signature is, or how it is made")
    if len({kind.prefix for kind in scheme.kinds}) != len(scheme.kinds):
        found.append("two kinds of signatures have one prefix")
    algorithms = {kind.algorithm for kind in scheme.kinds}
    if (Algorithm.EQUALS in algorithms) != (scheme.encoding is Encoding.PLAIN):
        found.append("only a credential that is compared as it is, is not encoded")
    if Algorithm.EQUALS in algorithms and fields:
        found.append("a credential that is the same every time signs nothing")
    if ("secret" in fields) != (Algorithm.SHA256 in algorithms):
        found.append("a plain hash signs only together with the secret, and nothing else needs it")
    if (scheme.stamp is None) != ("timestamp" not in fields) and not _stamped_in_body(scheme):
        found.append("a time counts when it is signed, and what is signed has to be found")
    if ("id" in fields) != (scheme.id is not None):
        found.append("an id that is signed has to be found")
    if isinstance(scheme.stamp and scheme.stamp.source, Item) and not scheme.separator:
        found.append("a time inside a list needs the list's separator")
    return found


def _stamped_in_body(scheme: Scheme) -> bool:
    return (
        scheme.stamp is not None
        and isinstance(scheme.stamp.source, Path)
        and "body" in fields_of(scheme)
    )


def headers_of(schemes: Sequence[Scheme]) -> frozenset[str]:
    """Name the headers that hold credentials."""
    return frozenset(
        source.name for scheme in schemes for source in scheme.sources if isinstance(source, Header)
    )
