"""A row of the provider table: one sender, how it signs, names, asks and wants to be answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reveille_webhook.domain.request import Headers, Request
from reveille_webhook.domain.scheme import Header, Path, Scheme, headers_of, scheme_problems
from reveille_webhook.domain.verdict import Verdict

_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
LONGEST_BUDGET = 0.8
_NEVER_KEPT = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})


@dataclass(frozen=True, slots=True)
class BodyHash:
    """The whole body's hash: the id of senders that repeat themselves byte for byte without one."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that a small function finds; empty when there is none."""

    function: Callable[[Headers, Any], str]


Source = Header | Path | BodyHash | Computed
# Verifies where no scheme fits: secrets, the request, our clock.
Special = Callable[[tuple[bytes, ...], Request, float], Verdict]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a handshake is answered."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a handshake may look at: the request, its document, and the hook's live secrets."""

    request: Request
    document: Any
    query: Mapping[str, str]
    secrets: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Adopted:
    """A reply to a handshake that brings the signing secret itself."""

    reply: Reply
    secret: bytes


@dataclass(frozen=True, slots=True)
class Handshake:
    """A question of the sender that is answered at once and makes no delivery that runs.

    The function gives None when the request is not this handshake.
    """

    name: str
    answer: Callable[[Asked], Reply | Adopted | None]
    method: str = "POST"
    # Unsigned by design: answered before anything is verified.
    unsigned: bool = False
    # A row is kept for people to look at.
    kept: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Provider:
    """One sender: of schemes and of sources the first that is there counts.

    There is one object for each row, and what is derived from a row is kept under it.
    """

    name: str
    schemes: tuple[Scheme, ...]
    event: tuple[Source, ...]
    dedupe: tuple[Source, ...] = ()
    action: tuple[Source, ...] = ()
    # Values that a filter may also take for the action.
    also_actions: tuple[Source, ...] = ()
    # Who set the event off, for filters against loops.
    sender: tuple[Source, ...] = ()
    # How often the sender has tried before, or tries now.
    retry: Header | None = None
    # Headers kept with a delivery, beside those that are kept for every sender.
    keep: frozenset[str] = frozenset()
    # Bodies are JSON whatever their content type says.
    always_json: bool = False
    # The hook takes nothing before it has a signing secret.
    demands_secret: bool = False
    special: Special | None = None
    handshakes: tuple[Handshake, ...] = ()
    # What the sender is answered when its delivery is judged, and when it is safe but not judged.
    status: int = 200
    queued_status: int = 202
    # The answer's whole body, for senders that insist.
    body: bytes | None = None
    # Seconds until it must have its answer, where that is less than the gateway's own budget.
    budget: float | None = None


def reads_id(provider: Provider) -> bool:
    """Tell whether the sender's id stands inside the body."""
    return any(isinstance(source, (Path, Computed)) for source in provider.dedupe)


def problems(provider: Provider) -> list[str]:
    """Say what is wrong with a row; nothing, for a row that can be used."""
    found = []
    if _NAME.fullmatch(provider.name) is None:
        found.append(f"{provider.name!r} is no name for a provider")
    sources = (
        *provider.dedupe,
        *provider.event,
        *provider.action,
        *provider.also_actions,
        *provider.sender,
    )
    credentials = headers_of(provider.schemes)
    headers = {source.name for source in sources if isinstance(source, Header)}
    found += [
        f"{name!r} is no header name in lower case"
        for name in sorted(headers | provider.keep | credentials)
        if _HEADER.fullmatch(name) is None
    ]
    if provider.keep & (credentials | _NEVER_KEPT):
        found.append("a credential may not be kept")
    if not {provider.status, provider.queued_status} <= set(range(200, 300)):
        found.append("a delivery that is safe may only be answered with success")
    if provider.budget is not None and not 0 < provider.budget < LONGEST_BUDGET:
        found.append(f"a budget is more than nothing, and less than {LONGEST_BUDGET} s")
    if not provider.event:
        found.append("nothing says what the event is called")
    if not provider.schemes:
        found.append("nothing says how the sender signs")
    for scheme in provider.schemes:
        found += scheme_problems(scheme)
    return found
