"""RetryRun: start a waiting repeat now, or ask for the work of a failed attempt once more."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from reveille_heartbeat.crash_points import RETRY_AFTER_COMMIT
from reveille_heartbeat.domain.followup import joined_state
from reveille_heartbeat.domain.states import RUN_TERMINAL, WAKEUP_TERMINAL, RunState, WakeupState
from reveille_heartbeat.domain.values import (
    Origin,
    Payload,
    Refusal,
    Requester,
    RequesterKind,
    Run,
    Wakeup,
    WakeupSource,
    Wish,
)
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_run, to_wakeup
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.repeats import Repeatable
from reveille_heartbeat.usecases.runs.loaded import read_words
from reveille_heartbeat.usecases.runs.promote_retries import RetryTurn
from reveille_heartbeat.usecases.visible import require_visible
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import FailedPrecondition
from reveille_runtime.hints import Notifier
from reveille_runtime.ids import new_id
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.requests import remember, store


class RetryOutcome(StrEnum):
    """What a wish for a repeat came to."""

    PROMOTED = "promoted"
    ALREADY_PROMOTED = "already_promoted"
    SUPPRESSED = "suppressed"
    NEW_WAKEUP = "new_wakeup"


@dataclass(frozen=True, slots=True)
class Retried:
    """The outcome, the attempt that repeats if there is one, and the wakeup it belongs to."""

    outcome: RetryOutcome
    wakeup_id: UUID
    run_id: UUID | None = None
    reason: str = ""
    message: str = ""

    def dump(self) -> bytes:
        """Write it down for a repeat of the request."""
        run_id = None if self.run_id is None else str(self.run_id)
        values = [self.outcome.value, str(self.wakeup_id), run_id, self.reason, self.message]
        return json.dumps(values).encode()

    @classmethod
    def load(cls, stored: bytes) -> Retried:
        """Read what was written down."""
        outcome, wakeup_id, run_id, reason, message = json.loads(stored)
        run = None if run_id is None else UUID(run_id)
        return cls(RetryOutcome(outcome), UUID(wakeup_id), run, reason, message)


class RetryRun:
    """One transaction: the promotion or the new wakeup, and the answer to the request."""

    def __init__(
        self, db: Database, notifier: Notifier, turn: RetryTurn, enqueuing: Enqueuing
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._turn = turn
        self._enqueuing = enqueuing

    async def __call__(self, actor: Actor, run_id: UUID, repeatable: Repeatable | None) -> Retried:
        """Give what came of it; the same request again gives the same.

        Raises:
            NotFound: there is no such attempt, or none that the caller may know of.
            FailedPrecondition: WRONG_STATE, the attempt has not ended, or it succeeded.
            InvalidArgument: REQUEST_ID_REUSED.
        """

        async def retry(tx: Tx) -> Retried:
            if repeatable is None:
                return await self._in(tx, actor, run_id)
            key = (repeatable.principal, repeatable.method, repeatable.request_id)
            known = await remember(tx, *key, repeatable.fingerprint)
            if known is not None:
                return Retried.load(known)
            retried = await self._in(tx, actor, run_id)
            await store(tx, *key, retried.dump())
            return retried

        retried = await retrying_transaction(self._db, retry, repeatable=repeatable is not None)
        crash_point(RETRY_AFTER_COMMIT)
        self._notifier.notify(channels.QUEUE, channels.FEED)
        return retried

    async def _in(self, tx: Tx, actor: Actor, run_id: UUID) -> Retried:
        rows = await tx.fetch(Q["find_runs"], [run_id])
        run = require_visible(actor, to_run(rows[0]) if rows else None, "run", run_id)
        newest = to_run((await tx.fetch(Q["runs_of_wakeup"], run.wakeup_id))[0])
        if newest.state is RunState.SCHEDULED_RETRY:
            return await self._promote(tx, newest)
        if newest.state not in RUN_TERMINAL:
            if newest.run_id == run_id and newest.retry_of_run_id is None:
                raise _wrong_state(run, "has not ended")
            return Retried(RetryOutcome.ALREADY_PROMOTED, run.wakeup_id, newest.run_id)
        wakeup = to_wakeup((await tx.fetch(Q["find_wakeups"], [run.wakeup_id]))[0])
        if wakeup.state not in WAKEUP_TERMINAL:
            raise _wrong_state(run, "is just ending")
        if newest.state is RunState.SUCCEEDED:
            raise _wrong_state(newest, "succeeded")
        return await self._ask_again(tx, actor, newest, wakeup)

    async def _promote(self, tx: Tx, newest: Run) -> Retried:
        taken = await self._turn.take(tx, newest.run_id, due=False)
        if isinstance(taken, Refusal):
            return Retried(
                RetryOutcome.SUPPRESSED,
                newest.wakeup_id,
                reason=taken.reason.value,
                message=taken.message,
            )
        outcome = RetryOutcome.PROMOTED if taken else RetryOutcome.ALREADY_PROMOTED
        return Retried(outcome, newest.wakeup_id, newest.run_id)

    async def _ask_again(self, tx: Tx, actor: Actor, run: Run, wakeup: Wakeup) -> Retried:
        locks = LockOrder()
        if run.issue_id is None:
            await locks.take(tx, Level.AGENT, Q["lock_agents"], [run.agent_id])
        else:
            await locks.take(tx, Level.ISSUE, Q["lock_issues"], [run.issue_id])
        words = (await read_words(tx, [wakeup], joined_state(wakeup.state)))[wakeup.wakeup_id]
        wish = _wish(actor, run, wakeup, words.prompt, words.payload)
        (made,) = await self._enqueuing.locked(tx, [wish])
        if made.state is WakeupState.SKIPPED:
            return Retried(
                RetryOutcome.SUPPRESSED, made.wakeup_id, reason=made.reason, message=made.message
            )
        # What had joined it is part of the work, and joins again.
        await self._enqueuing.locked(
            tx,
            [_wish(actor, run, each.wakeup, each.prompt, each.payload) for each in words.joined],
        )
        new = to_wakeup((await tx.fetch(Q["find_wakeups"], [made.wakeup_id]))[0])
        return Retried(RetryOutcome.NEW_WAKEUP, new.wakeup_id, new.run_id, new.reason, new.message)


def _wish(actor: Actor, run: Run, wakeup: Wakeup, prompt: str, payload: Payload) -> Wish:
    """Ask for the same as before, in the name of who asks now."""
    return Wish(
        wakeup_id=new_id(),
        workspace_id=wakeup.workspace_id,
        agent_id=wakeup.agent_id,
        source=WakeupSource.ON_DEMAND,
        wake_reason=wakeup.wake_reason,
        title=wakeup.title,
        prompt=prompt,
        issue_id=wakeup.issue_id,
        caller=actor.principal,
        idempotency_key=None,
        origin=Origin(originator_user_id=actor.user_id or ""),
        payload=payload,
        requester=Requester(RequesterKind.USER, actor.subject),
        squad_id=wakeup.squad_id,
        task_key=wakeup.task_key,
        comment_ids=wakeup.comment_ids,
        context={**wakeup.context, "retry_of_run_id": str(run.run_id)},
    )


def _wrong_state(run: Run, what: str) -> FailedPrecondition:
    return FailedPrecondition(
        "WRONG_STATE",
        f"run {run.run_id} {what}; only what has failed is repeated",
        {"run_id": str(run.run_id), "state": run.state.value},
    )
