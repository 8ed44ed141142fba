"""Refuse a request, and keep a row of it for people to look at: of floods a sample only.

A sender's question that people have to read is kept here too, apart from what was refused.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from reveille_webhook.domain import facts
from reveille_webhook.domain.delivery import Answer, Known, NewDelivery
from reveille_webhook.domain.ratelimit import FairSampler, SlidingCounters
from reveille_webhook.domain.states import DeliveryState, Outcome, SignatureState
from reveille_webhook.domain.verdict import Verdict
from reveille_webhook.usecases.diagnose import Diagnose
from reveille_webhook.usecases.drafts import Draft
from reveille_webhook.usecases.store_delivery import STORE_PATIENCE, StoreDelivery

_BAD: Mapping[SignatureState, str] = {
    SignatureState.INVALID: "invalid_signature",
    SignatureState.MISSING: "missing_signature",
}
# Seconds until a question that was kept is kept again, should its sender have to ask again.
_ASKED_AGAIN = 3600.0


class Refuse:
    """Answers, and keeps what the samplers let through; nothing of it will run."""

    def __init__(self, store: StoreDelivery, diagnose: Diagnose, limit: int) -> None:
        self._store = store
        self._diagnose = diagnose
        self._rejected = FairSampler(limit)
        # Of their own: whoever floods a hook must not hide the one message that brings its secret.
        self._questions = FairSampler(limit)
        self._known = SlidingCounters(1, _ASKED_AGAIN)

    async def unverified(self, draft: Draft, state: SignatureState) -> Answer:
        """Refuse what is not what it claims to be. Its body is not read: nobody vouches for it."""
        reason = _BAD[state]
        if not self._keeps(draft):
            return Answer(Outcome.REJECTED, 401, reason=reason)
        notes = await self._diagnose(draft.endpoint, draft.provider, draft.request)
        row = _named(draft).refused(state, reason, 401, notes=notes)
        await self._store(row, STORE_PATIENCE)
        return Answer(Outcome.REJECTED, 401, row.id, reason=reason)

    async def too_large(self, draft: Draft) -> Answer:
        """Refuse a body over the hook's cap; nothing of the body is kept."""
        answer = Answer(Outcome.REJECTED, 413, reason="body_too_large")
        if not self._keeps(draft):
            return answer
        bare = replace(draft, request=draft.request.with_body(b""))
        row = _named(bare).refused(
            SignatureState.NOT_REQUIRED,
            "body_too_large",
            413,
            f"the body is larger than {draft.endpoint.max_body_bytes} bytes",
        )
        await self._store(row, STORE_PATIENCE)
        return replace(answer, delivery_id=row.id)

    async def copied(self, draft: Draft, state: SignatureState, known: Known) -> Answer:
        """Refuse signed content that came before under another id."""
        answer = Answer(Outcome.REJECTED, 409, reason="replayed_content")
        if not self._keeps(draft):
            return answer
        row = draft.refused(
            state,
            "replayed_content",
            409,
            f"the same signed content came before: delivery {known.facts.delivery_id}",
        )
        await self._store(row, STORE_PATIENCE)
        return replace(answer, delivery_id=row.id)

    async def keep(self, draft: Draft, name: str, verdict: Verdict) -> UUID | None:
        """Keep a sender's question that people have to read; of unsigned ones a sample only.

        One that is verified is kept once, lest somebody who captured it fills the table with it.
        """
        now = asyncio.get_running_loop().time()
        digest = hashlib.sha256(draft.request.body).digest()
        content = (facts.content_key(draft.endpoint.id, verdict, digest) or b"").hex()
        if self._known.take(content, now) if content else not _picks(self._questions, draft):
            return None
        row: NewDelivery = replace(draft, naming=facts.Naming(name)).ended(
            verdict, DeliveryState.IGNORED, "handshake", ""
        )
        try:
            await self._store(row, STORE_PATIENCE)
        except BaseException:
            # It will be sent again, and is to be kept then.
            self._known.forget(content)
            raise
        return row.id

    def _keeps(self, draft: Draft) -> bool:
        return _picks(self._rejected, draft)


def _picks(sampler: FairSampler, draft: Draft) -> bool:
    now = asyncio.get_running_loop().time()
    return sampler.keeps(str(draft.endpoint.id), draft.request.client, now)


def _named(draft: Draft) -> Draft:
    """Name a request by its headers alone."""
    naming = facts.name(draft.provider, draft.request.with_body(b""), {})
    return replace(draft, naming=facts.Naming(naming.event))
