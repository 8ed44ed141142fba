"""What verification found."""

from __future__ import annotations

from dataclasses import dataclass

from reveille_webhook.domain.states import SignatureState


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state, which secret matched, and the bytes that were signed (without the secret)."""

    state: SignatureState
    matched: int | None = None
    signed: bytes = b""


MISSING = Verdict(SignatureState.MISSING)
INVALID = Verdict(SignatureState.INVALID)
