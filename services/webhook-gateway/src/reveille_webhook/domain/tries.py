"""Tries at a failed signature, bounded together: an explanation may not cost more than it is worth.

Whoever sends the request chooses its body and how many signatures it lists, so work is counted, not
tries: of a short body many are made, of a very long one hardly any.
"""

from __future__ import annotations

from collections.abc import Sequence

from reveille_webhook.domain.provider import Provider
from reveille_webhook.domain.request import Request, values_of
from reveille_webhook.domain.scheme import Header, Path, Scheme
from reveille_webhook.domain.signature import verify, verify_scheme
from reveille_webhook.domain.states import SignatureState

# In bytes hashed: about a tenth of a second, in which nothing else is served.
_MOST_WORK = 32 << 20
# What a comparison costs besides its message; those by public keys are the dear ones.
_COMPARING = 16 << 10
# A body that holds its own signature is read several times in a try, each far slower than hashing.
_READING = 64


class Tries:
    """Verifies what is likely to be meant, until the work is used up; then nothing is valid."""

    def __init__(self, provider: Provider, request: Request, now: float) -> None:
        self.now = now
        self.reads_body = provider.special is not None or any(
            isinstance(source, Path)
            for scheme in provider.schemes
            for source in (*scheme.sources, scheme.id, scheme.stamp and scheme.stamp.source)
        )
        self._left = _MOST_WORK
        self._comparisons = max(
            (_comparisons(scheme, request) for scheme in provider.schemes), default=1
        )

    def scheme(self, scheme: Scheme, secrets: Sequence[bytes], request: Request) -> bool:
        """Tell whether a request is signed by one scheme, where that can still be tried."""
        return self._affords(secrets, request) and (
            verify_scheme(scheme, secrets, request, self.now).state is SignatureState.VALID
        )

    def provider(self, provider: Provider, secrets: Sequence[bytes], request: Request) -> bool:
        """Tell whether a request is signed as a sender signs, where that can still be tried."""
        return self._affords(secrets, request) and (
            verify(provider, secrets, request, self.now).state is SignatureState.VALID
        )

    def _affords(self, secrets: Sequence[bytes], request: Request) -> bool:
        size = len(request.body)
        work = len(secrets) * self._comparisons * (size + _COMPARING)
        if self.reads_body:
            work += size * _READING
        if work > self._left:
            return False
        self._left -= work
        return True


def _comparisons(scheme: Scheme, request: Request) -> int:
    """Count how often a request's signatures are compared with one secret."""
    listed = 1
    if scheme.separator:
        separator = scheme.separator.encode()
        listed = sum(
            value.count(separator) + 1
            for source in scheme.sources
            if isinstance(source, Header)
            for value in values_of(request.headers, source.name)
        )
    return max(listed, 1) * len(scheme.kinds)
