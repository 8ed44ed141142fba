"""A hook's own word on how its sender signs, for senders that have no row of their own."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache

from reveille_webhook.domain.provider import Provider
from reveille_webhook.domain.scheme import Algorithm, Encoding, Header, Kind, Scheme

ALGORITHMS = {
    "sha1": Algorithm.HMAC_SHA1,
    "sha256": Algorithm.HMAC_SHA256,
    "sha512": Algorithm.HMAC_SHA512,
}
# Whose hooks say how their sender signs.
TOLD = frozenset({"generic_hmac", "generic_token"})
ENCODINGS = {"hex": Encoding.HEX, "base64": Encoding.BASE64}
_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}")
_PREFIX = re.compile(r"[\x21-\x7e]{0,50}")
_LONGEST_EVENT = 100
# What is said of an HMAC; a token is compared as it is.
_OF_AN_HMAC = ("algorithm", "encoding", "prefix", "separator")


@dataclass(frozen=True, slots=True)
class Generic:
    """The header, and for an HMAC how it is made; `event` names what the sender does not name."""

    header: str = ""
    algorithm: str = "sha256"
    encoding: str = "hex"
    prefix: str = ""
    separator: str = ""
    event: str = ""


def violations(provider: str, generic: Generic) -> list[tuple[str, str]]:
    """Say which fields cannot be used, and why."""
    found = []
    if provider not in TOLD:
        found.append(("", "only generic_hmac and generic_token are told how their sender signs"))
    if generic.header and _HEADER.fullmatch(generic.header.lower()) is None:
        found.append(("header", "must be a header's name"))
    if generic.algorithm not in ALGORITHMS:
        found.append(("algorithm", f"must be one of: {', '.join(ALGORITHMS)}"))
    if generic.encoding not in ENCODINGS:
        found.append(("encoding", f"must be one of: {', '.join(ENCODINGS)}"))
    if _PREFIX.fullmatch(generic.prefix) is None:
        found.append(("prefix", "must be at most 50 visible ASCII characters"))
    if generic.separator not in {"", ",", ";", " "}:
        found.append(("separator", "must be a comma, a semicolon or a space, or empty"))
    if len(generic.event) > _LONGEST_EVENT or not generic.event.isprintable():
        found.append(("event", f"must be at most {_LONGEST_EVENT} printable characters"))
    return found


def misplaced(provider: str, named: Collection[str]) -> list[tuple[str, str]]:
    """Say which of the fields that a hook names mean nothing to its sender, and why."""
    if provider != "generic_token":
        return []
    problem = "is of generic_hmac only: a token is compared as it is"
    return [(name, problem) for name in _OF_AN_HMAC if name in named]


def told(provider: Provider, generic: Generic | None) -> Provider:
    """Give the row as a hook wants it; to hooks that want the same, the same."""
    return provider if generic is None else _told(provider, generic)


@lru_cache(maxsize=1024)
def _told(provider: Provider, generic: Generic) -> Provider:
    if replace(generic, event="") == Generic():
        return provider
    usual = provider.schemes[0].sources
    header = (Header(generic.header.lower()),) if generic.header else usual
    if provider.name == "generic_token":
        scheme = replace(provider.schemes[0], sources=header)
    else:
        scheme = Scheme(
            header,
            (Kind(ALGORITHMS[generic.algorithm], generic.prefix),),
            ENCODINGS[generic.encoding],
            separator=generic.separator,
        )
    return replace(provider, schemes=(scheme,))
