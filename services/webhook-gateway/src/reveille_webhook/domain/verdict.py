"""What verification found."""

from __future__ import annotations

from dataclasses import dataclass

from reveille_webhook.domain.states import SignatureState


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state, which secret matched, and what tells the signed content from any other.

    Where the whole body is signed that is the body, and `signed` has what else counts; otherwise it
    is `signed` alone. A credential that signs nothing vouches for no content: both are empty.
    """

    state: SignatureState
    matched: int | None = None
    signed: bytes = b""
    covers_body: bool = False


MISSING = Verdict(SignatureState.MISSING)
INVALID = Verdict(SignatureState.INVALID)
