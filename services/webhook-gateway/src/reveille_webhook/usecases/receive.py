"""Receive a request: verify, read, store, have it judged, answer. In this order, always.

What is answered with success is durable; the bytes that are verified are the bytes that came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from reveille_runtime.ids import new_id
from reveille_webhook.domain import facts, parsing
from reveille_webhook.domain.delivery import Answer, Known
from reveille_webhook.domain.document import query_of
from reveille_webhook.domain.endpoint import OpenEndpoint
from reveille_webhook.domain.exclusion import exclusion
from reveille_webhook.domain.generic import told
from reveille_webhook.domain.inflate import Broken, TooLarge, inflate
from reveille_webhook.domain.lane import lane_key
from reveille_webhook.domain.provider import (
    Adopted,
    Asked,
    Handshake,
    Provider,
    Reply,
    reads_id,
)
from reveille_webhook.domain.request import Request, text_of
from reveille_webhook.domain.room import Place
from reveille_webhook.domain.signature import verify
from reveille_webhook.domain.states import DeliveryState, Outcome, SignatureState
from reveille_webhook.domain.verdict import Verdict
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.usecases import answers
from reveille_webhook.usecases.admit import Admit
from reveille_webhook.usecases.answers import UnparsableError
from reveille_webhook.usecases.drafts import Draft
from reveille_webhook.usecases.refuse import Refuse
from reveille_webhook.usecases.secrets import Secrets, SecretUses
from reveille_webhook.usecases.store_delivery import STORE_PATIENCE, StoreDelivery

_LEAST_WAIT = 0.05
# Longer than any question: what is longer is not read before it is verified.
_LONGEST_QUESTION = 4096


class Receive:
    """Takes one request at an endpoint."""

    def __init__(
        self,
        store: StoreDelivery,
        admit: Admit,
        refuse: Refuse,
        uses: SecretUses,
        secrets: Secrets,
        budget: float,
    ) -> None:
        self._store = store
        self._admit = admit
        self._refuse = refuse
        self._uses = uses
        self._secrets = secrets
        self._budget = budget

    async def __call__(
        self,
        endpoint: OpenEndpoint,
        request: Request,
        place: Place,
        carrier: Mapping[str, str],
        started: float,
    ) -> Answer:
        """Receive, and say what the sender is answered; `started` is the loop's clock.

        Raises:
            UnparsableError, UnknownHookError, Crowded: see there. Any other exception: the database
                did not take the row.
        """
        provider = told(PROVIDERS[endpoint.provider], endpoint.options.generic)
        secrets = tuple(each.value for each in endpoint.secrets)
        asked = _asked(provider, request, secrets) if provider.handshakes else None
        if asked is not None:
            answer = await self._handshake(endpoint, provider, asked)
            if answer is not None:
                return answer
        draft = Draft(endpoint, provider, request, carrier)
        verdict = self._verify(endpoint, provider, request, secrets)
        if verdict.state in {SignatureState.INVALID, SignatureState.MISSING}:
            return await self._refuse.unverified(draft, verdict.state)
        try:
            whole = _inflated(request, endpoint.max_body_bytes)
        except TooLarge:
            return await self._refuse.too_large(draft)
        except Broken:
            return await self._unparsable(draft, verdict, "the body is not what its coding says")
        if whole is not request:
            # One at a time is read back, so it may do without a place until its size is known.
            place.hold(len(request.body) + len(whole.body))
        parsed = parsing.parse(
            whole.body,
            request.content_type,
            always_json=provider.always_json,
            holds_id=reads_id(provider),
        )
        if parsed.problem:
            return await self._unparsable(replace(draft, request=whole), verdict, parsed.problem)
        if asked is not None:
            first = _first(secrets, verdict.matched)
            asked = replace(asked, document=parsed.document, secrets=first)
            answer = await self._handshake(endpoint, provider, asked, verdict)
            if answer is not None:
                return answer
        generic = endpoint.options.generic
        usual = generic.event if generic is not None else ""
        naming = facts.name(provider, whole, parsed.document, usual)
        lane = lane_key(endpoint.options.lane_path, parsed.document)
        # In memory a document takes many times its text, and from here on others are waited for.
        del asked, parsed
        whole_draft = Draft(endpoint, provider, whole, carrier, naming, lane, request.body)
        return await self._take(whole_draft, verdict, started)

    async def _handshake(
        self,
        endpoint: OpenEndpoint,
        provider: Provider,
        asked: Asked,
        verdict: Verdict | None = None,
    ) -> Answer | None:
        """Answer a question of the sender; None when it is none, or asked the other way.

        Without a verdict nothing was verified yet: only what is unsigned by design is answered.
        """
        for handshake in provider.handshakes:
            if handshake.method != asked.request.method or handshake.unsigned != (verdict is None):
                continue
            reply = handshake.answer(asked)
            if isinstance(reply, Adopted):
                kept = await self._secrets.adopt(endpoint.id, new_id(), reply.secret)
                reply = reply.reply if kept else Reply(401)
            if reply is not None:
                return await self._answered(endpoint, provider, asked, handshake, reply, verdict)
        return None

    async def too_large(
        self, endpoint: OpenEndpoint, request: Request, carrier: Mapping[str, str]
    ) -> None:
        """Keep a trace of a body that was over its hook's cap before it was read to its end."""
        provider = told(PROVIDERS[endpoint.provider], endpoint.options.generic)
        await self._refuse.too_large(Draft(endpoint, provider, request, carrier))

    async def ask(self, endpoint: OpenEndpoint, request: Request) -> Answer | None:
        """Answer a request that is no post; None when nobody asks like that."""
        provider = told(PROVIDERS[endpoint.provider], endpoint.options.generic)
        secrets = tuple(each.value for each in endpoint.secrets)
        asked = _asked(provider, request, secrets)
        return await self._handshake(endpoint, provider, asked)

    async def _answered(
        self,
        endpoint: OpenEndpoint,
        provider: Provider,
        asked: Asked,
        handshake: Handshake,
        reply: Reply,
        verdict: Verdict | None,
    ) -> Answer:
        if not handshake.kept:
            return answers.handshake(reply)
        draft = Draft(endpoint, provider, asked.request, {})
        state = verdict or Verdict(SignatureState.NOT_REQUIRED)
        return answers.handshake(reply, await self._refuse.keep(draft, handshake.name, state))

    def _verify(
        self,
        endpoint: OpenEndpoint,
        provider: Provider,
        request: Request,
        secrets: Sequence[bytes],
    ) -> Verdict:
        if not endpoint.demands_signature:
            return Verdict(SignatureState.NOT_REQUIRED)
        verdict = verify(provider, secrets, request, endpoint.now.timestamp())
        matched = verdict.matched
        if matched is not None and not endpoint.secrets[matched].used_lately:
            self._uses.note(endpoint.secrets[matched].id)
        return verdict

    async def _unparsable(self, draft: Draft, verdict: Verdict, problem: str) -> Answer:
        """Keep a signed body that cannot be read: refusing it would switch the hook off."""
        if verdict.state is SignatureState.NOT_REQUIRED:
            raise UnparsableError(problem)
        naming = facts.name(draft.provider, draft.request, {})
        delivery = replace(draft, naming=naming).ended(
            verdict, DeliveryState.IGNORED, "unparsable", problem
        )
        await self._store(delivery, STORE_PATIENCE)
        return answers.safe(draft.provider, Outcome.IGNORED, delivery.id, reason="unparsable")

    async def _take(self, draft: Draft, verdict: Verdict, started: float) -> Answer:
        options = draft.endpoint.options
        left_out = exclusion(
            draft.naming.sender,
            draft.request.body,
            options.excluded_senders,
            options.own_markers,
        )
        if left_out is not None:
            reason, message = left_out
            ended = draft.ended(verdict, DeliveryState.IGNORED, reason, message)
            await self._store(ended, STORE_PATIENCE)
            return answers.safe(draft.provider, Outcome.IGNORED, ended.id, reason=reason)
        delivery = draft.waiting(verdict)
        known = await self._store(delivery, STORE_PATIENCE)
        if known.refused:
            return await self._refuse.copied(draft, verdict.state, known)
        budget = min(self._budget, draft.provider.budget or self._budget)
        left = max(budget - (asyncio.get_running_loop().time() - started), _LEAST_WAIT)
        if known.is_copy:
            return await self._answer_copy(draft.provider, known, left)
        if known.held:
            return answers.safe(draft.provider, Outcome.HELD, delivery.id, reason="loop_breaker")
        admission = await self._admit.for_request(
            known.facts, left, answers_with=draft.provider.status
        )
        return answers.judged(draft.provider, known.facts.delivery_id, admission)

    async def _answer_copy(self, provider: Provider, known: Known, left: float) -> Answer:
        run_id = known.run_id
        if not known.judged:
            # The original was stored, but nobody heard what autopilot says: ask in its place.
            admission = await self._admit.for_request(known.facts, left, answers_with=None)
            run_id = admission.run_id or run_id
        return answers.safe(provider, Outcome.DUPLICATE, known.facts.delivery_id, run_id)


def _asked(provider: Provider, request: Request, secrets: tuple[bytes, ...]) -> Asked:
    """Read what an unsigned question may hold; the body only where some handshake looks at it."""
    reads = any(each.unsigned and each.method == "POST" for each in provider.handshakes)
    short = request.method == "POST" and len(request.body) <= _LONGEST_QUESTION
    document = parsing.parse(request.body, request.content_type).document if reads and short else {}
    # Not read as an address: its host is whatever the sender says.
    return Asked(request, document, query_of(request.url), secrets)


def _first(secrets: tuple[bytes, ...], matched: int | None) -> tuple[bytes, ...]:
    """Put the secret that verified the request first: answers are signed with it."""
    if matched is None:
        return secrets
    return (secrets[matched], *secrets[:matched], *secrets[matched + 1 :])


def _inflated(request: Request, cap: int) -> Request:
    """Read a compressed body back; what was verified is what came."""
    coding = text_of(request.headers, "content-encoding").lower()
    if coding in {"", "identity"}:
        return request
    return request.with_body(inflate(request.body, coding, cap))
