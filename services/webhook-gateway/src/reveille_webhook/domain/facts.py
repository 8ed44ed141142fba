"""What a delivery is called: its event, its action and the sender's id for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from reveille_webhook.domain.request import Headers, storable, text_of, values_of
from reveille_webhook.domain.scheme import Header, Member, Provider, Source

NO_EVENT = "webhook.received"
LONGEST_NAME = 200
LONGEST_KEY = 255
_KEPT = frozenset({"user-agent", "idempotency-key"})


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one delivery; the dedupe key is None when the sender gave no id."""

    event: str
    action: str
    actions: tuple[str, ...]
    dedupe_key: str | None


def name(provider: Provider, headers: Headers, members: Mapping[str, Any]) -> Naming:
    """Read the names from where the provider's row says they are."""
    action = next(_found(provider.action, headers, members), "")
    others = _found(provider.also_actions, headers, members)
    return Naming(
        event=next(_found(provider.event, headers, members), NO_EVENT),
        action=action,
        actions=tuple(dict.fromkeys(each for each in (action, *others) if each)),
        dedupe_key=dedupe_key(provider, headers, members),
    )


def dedupe_key(provider: Provider, headers: Headers, members: Mapping[str, Any]) -> str | None:
    """Give the sender's id; one that is too long for a key is replaced by its hash."""
    key = next(_found(provider.dedupe, headers, members, longest=1 << 16), None)
    if key is None or len(key) <= LONGEST_KEY:
        return key
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def kept_headers(provider: Provider, headers: Headers) -> dict[str, str]:
    """Give the headers that are stored: an allow-list, and of the signature only that it came."""
    kept = {
        wanted: text
        for wanted in sorted(_KEPT | provider.keep)
        if (text := text_of(headers, wanted))
    }
    if values_of(headers, provider.signature.header):
        kept[f"{provider.signature.header}-present"] = "true"
    return kept


def _found(
    sources: Iterable[Source],
    headers: Headers,
    members: Mapping[str, Any],
    longest: int = LONGEST_NAME,
) -> Iterator[str]:
    for source in sources:
        match source:
            case Header():
                text = text_of(headers, source.name, longest)
            case Member():
                value = members.get(source.name)
                text = storable(value, longest).strip() if isinstance(value, str) else ""
            case _:
                assert_never(source)
        if text:
            yield text
