"""What a delivery is called: its event, its action, who set it off, and the sender's id for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, assert_never
from uuid import UUID

from reveille_webhook.domain.provider import BodyHash, Computed, Provider, Source
from reveille_webhook.domain.request import Headers, Request, at_path, storable, text_of, values_of
from reveille_webhook.domain.scheme import Header, Path, headers_of
from reveille_webhook.domain.verdict import Verdict

NO_EVENT = "webhook.received"
LONGEST_NAME = 200
LONGEST_KEY = 255
_KEPT = frozenset({"user-agent", "idempotency-key", "content-encoding"})
# More digits than any counter of a sender's has.
_LONGEST_COUNT = 6


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one delivery; the dedupe key is None when the sender gave no id."""

    event: str
    action: str = ""
    actions: tuple[str, ...] = ()
    dedupe_key: str | None = None
    sender: str = ""
    retries: int = 0


def name(provider: Provider, request: Request, document: Any, usual: str = "") -> Naming:
    """Read the names from where the provider's row says they are.

    `usual` is what the hook calls an event that its sender does not name.
    """
    actions = [_read(each, request, document) for each in provider.also_actions]
    action = _first(provider.action, request, document)
    return Naming(
        event=_first(provider.event, request, document) or usual or NO_EVENT,
        action=action,
        actions=tuple(dict.fromkeys(each for each in (action, *actions) if each)),
        dedupe_key=_dedupe(provider, request, document),
        sender=_first(provider.sender, request, document, numbers=True),
        retries=_retries(provider, request.headers),
    )


def content_key(endpoint_id: UUID, verdict: Verdict, sent_sha256: bytes) -> bytes | None:
    """Give what tells that signed content came before, under whatever id.

    None where the credential vouches for none. The hash is of the body as it was sent: that is what
    was signed, and what it is read as depends on headers that are not.
    """
    if not verdict.covers_body and not verdict.signed:
        return None
    body = sent_sha256 if verdict.covers_body else b""
    return hashlib.sha256(endpoint_id.bytes + body + verdict.signed).digest()


def kept_headers(provider: Provider, headers: Headers) -> dict[str, str]:
    """Give the headers that are stored: an allow-list, and of a credential only that it came."""
    wanted, credentials = _kept_of(provider)
    kept = {each: text for each in wanted if (text := text_of(headers, each))}
    for each in credentials:
        if values_of(headers, each):
            kept[f"{each}-present"] = "true"
    return kept


@lru_cache(maxsize=256)
def _kept_of(provider: Provider) -> tuple[Sequence[str], Sequence[str]]:
    return sorted(_KEPT | provider.keep), sorted(headers_of(provider.schemes))


def _dedupe(provider: Provider, request: Request, document: Any) -> str | None:
    """Find the sender's id; one that is too long for a key is replaced by its hash."""
    for source in provider.dedupe:
        key = _read(source, request, document, longest=1 << 16, numbers=True)
        if len(key) > LONGEST_KEY:
            return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"
        if key:
            return key
    return None


def _retries(provider: Provider, headers: Headers) -> int:
    if provider.retry is None:
        return 0
    text = text_of(headers, provider.retry.name)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_COUNT else 0


def _first(
    sources: Iterable[Source], request: Request, document: Any, *, numbers: bool = False
) -> str:
    """Read the first source that is there; empty when none is."""
    for source in sources:
        if text := _read(source, request, document, numbers=numbers):
            return text
    return ""


def _read(
    source: Source,
    request: Request,
    document: Any,
    *,
    longest: int = LONGEST_NAME,
    numbers: bool = False,
) -> str:
    """Read one source; empty when it is not there. A number is an id, and never a name."""
    match source:
        case Header():
            # Fit for a row already.
            return text_of(request.headers, source.name, longest).strip()
        case Path():
            value = at_path(document, source.path)
        case Computed():
            value = source.function(request.headers, document)
        case BodyHash():
            value = f"body:{hashlib.sha256(request.body).hexdigest()}" if request.body else ""
        case _:
            assert_never(source)
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return storable(value, longest).strip() if isinstance(value, str) else ""
