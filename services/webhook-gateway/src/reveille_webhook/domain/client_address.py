"""Who really sent a request: the last hop that is not one of our own proxies.

A proxy appends the address it was called from, so only the right end of X-Forwarded-For can be
believed, and only as long as each hop to its right is trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from reveille_webhook.domain.request import Headers, values_of

Address = IPv4Address | IPv6Address
Networks = Sequence[IPv4Network | IPv6Network]
UNKNOWN = "unknown"


def networks(texts: Sequence[str]) -> Networks:
    """Read networks, or single addresses; raises ValueError for anything else."""
    return [ip_network(text, strict=False) for text in texts]


def client_key(peer: str, headers: Headers, trusted: Networks) -> str:
    """Name the sender for counting: an IPv4 address, or the /64 that an IPv6 address is from."""
    return _key(_client(_read(peer), headers, trusted))


def peer_key(peer: str, trusted: Networks) -> str | None:
    """Name who holds a connection; None for our own proxies, which hold them for everybody."""
    address = _read(peer)
    if address is not None and _is_trusted(address, trusted):
        return None
    return _key(address)


@lru_cache(maxsize=4096)
def _key(address: Address | None) -> str:
    if address is None:
        return UNKNOWN
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return str(address)


def _client(peer: Address | None, headers: Headers, trusted: Networks) -> Address | None:
    if peer is None or not _is_trusted(peer, trusted):
        return peer
    found = peer
    hops = b",".join(values_of(headers, "x-forwarded-for")).decode("latin-1").split(",")
    for hop in reversed(hops):
        address = _read(hop)
        if address is None:
            # What a trusted proxy did not write itself says nothing.
            return found
        found = address
        if not _is_trusted(address, trusted):
            return found
    return found


def _is_trusted(address: Address, trusted: Networks) -> bool:
    return any(address.version == network.version and address in network for network in trusted)


@lru_cache(maxsize=4096)
def _read(text: str) -> Address | None:
    """Read an address, also one with a port or in brackets; an IPv4 in IPv6 clothes is an IPv4."""
    bare = text.strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        address = ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
