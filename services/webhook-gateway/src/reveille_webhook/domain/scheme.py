"""What a row of the provider table can say about a sender, and what makes a row usable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")


class Algorithm(StrEnum):
    """How a signature is made."""

    HMAC_SHA256 = "sha256"


class Encoding(StrEnum):
    """How a signature is written."""

    HEX = "hex"


class SignedMessage(StrEnum):
    """Which bytes are signed."""

    BODY = "body"


@dataclass(frozen=True, slots=True)
class SignatureScheme:
    """How a sender signs: the header's value is the prefix and the encoded signature."""

    header: str
    prefix: str
    algorithm: Algorithm
    encoding: Encoding
    message: SignedMessage


@dataclass(frozen=True, slots=True)
class Header:
    """A value that a request header holds; the name is in lower case."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """A value that a text member at the top of a JSON body holds."""

    name: str


Source = Header | Member


@dataclass(frozen=True, slots=True)
class Provider:
    """One sender: sources are tried in order, the first that holds something counts."""

    name: str
    # Used when the endpoint has a signing secret.
    signature: SignatureScheme
    dedupe: tuple[Source, ...]
    event: tuple[Source, ...]
    action: tuple[Source, ...]
    # Members that a filter may also take for the action.
    also_actions: tuple[Source, ...] = ()
    # Headers kept with a delivery, beside those that are kept for every sender.
    keep: frozenset[str] = frozenset()
    # What the sender is answered when the delivery is safe, but not judged yet.
    queued_status: int = 202


def problems(provider: Provider) -> list[str]:
    """Say what is wrong with a row; nothing, for a row that can be used."""
    found = []
    if re.fullmatch(r"[a-z][a-z0-9_]{0,49}", provider.name) is None:
        found.append(f"{provider.name!r} is no name for a provider")
    sources = (*provider.dedupe, *provider.event, *provider.action, *provider.also_actions)
    headers = {source.name for source in sources if isinstance(source, Header)}
    found += [
        f"{name!r} is no header name in lower case"
        for name in sorted(headers | provider.keep | {provider.signature.header})
        if _HEADER.fullmatch(name) is None
    ]
    if provider.signature.header in provider.keep:
        found.append("a signature may not be kept")
    if not 200 <= provider.queued_status <= 299:
        found.append("a delivery that is safe may only be answered with success")
    if not provider.event:
        found.append("nothing says what the event is called")
    return found
