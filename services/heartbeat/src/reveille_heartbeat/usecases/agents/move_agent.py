"""PauseAgent, ResumeAgent, ArchiveAgent: whether an agent takes work."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.crash_points import AGENT_STOPPED_AFTER_COMMIT
from reveille_heartbeat.domain.agents import AgentStatus
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import AGENT_TRANSITIONS, AgentState, WakeupState
from reveille_heartbeat.domain.values import Agent
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.agents.keepers import lock_agent
from reveille_heartbeat.usecases.agents.update_agent import archived
from reveille_heartbeat.usecases.etags import changed_meanwhile, require_etag
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import tell_of_ends
from reveille_heartbeat.usecases.wakeups.ending import Ended, cancel_wakeup
from reveille_runtime import feed
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import FailedPrecondition
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.validation import NIL

# Wakeups that are cancelled in one transaction.
_BATCH = 100


@dataclass(frozen=True, slots=True)
class Stopped:
    """The agent, and how many wakeups ended with its work."""

    agent: Agent
    cancelled: int


class MoveAgent:
    """Moves agents by the table of transitions; the state they have already changes nothing.

    An agent that stops leaves what it holds at once, in the transaction that stops it. What only
    waits follows in batches; should they not be finished, a repeat goes on, and the queue itself
    refuses to start any of it.
    """

    def __init__(self, db: Database, notifier: Notifier, spans: RunSpans) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans

    async def pause(self, actor: Actor, agent_id: UUID, why: str, etag: str) -> Stopped:
        """Take no more work until it is resumed. Raises as `archive`."""
        return await self._stop(
            actor, agent_id, AgentState.PAUSED, why, etag, Reason.AGENT_PAUSED, "was paused"
        )

    async def archive(self, actor: Actor, agent_id: UUID, etag: str) -> Stopped:
        """Take no more work for ever.

        Raises:
            NotFound: the caller cannot see it. PermissionDenied: it is not theirs.
            Aborted: it was changed since the caller read it.
            FailedPrecondition: it is archived, or leads a squad that is not.
        """
        return await self._stop(
            actor, agent_id, AgentState.ARCHIVED, "", etag, Reason.AGENT_ARCHIVED, "was archived"
        )

    async def resume(self, actor: Actor, agent_id: UUID, etag: str) -> Agent:
        """Take work again. Raises as `archive`."""

        async def resume(tx: Tx) -> Agent:
            return await self._move(tx, LockOrder(), actor, agent_id, AgentState.ACTIVE, "", etag)

        agent = await retrying_transaction(self._db, resume)
        self._notifier.notify(channels.FEED, channels.QUEUE)
        return agent

    async def _stop(
        self,
        actor: Actor,
        agent_id: UUID,
        target: AgentState,
        why: str,
        etag: str,
        reason: Reason,
        words: str,
    ) -> Stopped:
        ended = Ended()

        async def stop(tx: Tx) -> tuple[Agent, set[UUID]]:
            ended.runs.clear()
            locks = LockOrder()
            agent = await self._move(tx, locks, actor, agent_id, target, why, etag)
            held = await tx.fetch(Q["wakeups_at_work"], agent_id)
            pairs = [(row["wakeup_id"], row["issue_id"]) for row in held]
            message = f"agent {agent.name} {words}"
            return agent, await _cancel(tx, locks, pairs, reason, message, ended)

        agent, cancelled = await retrying_transaction(self._db, stop)
        crash_point(AGENT_STOPPED_AFTER_COMMIT)
        await tell_of_ends(self._db, self._notifier, self._spans, ended)
        after = NIL
        while True:
            batch = await self._waiting(agent, after, reason, f"agent {agent.name} {words}")
            cancelled |= batch.cancelled
            if batch.last is None:
                return Stopped(agent, len(cancelled))
            after = batch.last

    async def _move(
        self,
        tx: Tx,
        locks: LockOrder,
        actor: Actor,
        agent_id: UUID,
        target: AgentState,
        why: str,
        etag: str,
    ) -> Agent:
        agent = await lock_agent(tx, locks, actor, agent_id)
        require_etag(etag, agent, f"agent {agent.name}")
        if agent.state is target:
            return agent
        if target not in AGENT_TRANSITIONS[agent.state]:
            raise archived(agent)
        if target is AgentState.ARCHIVED:
            await _require_no_squad(tx, agent)
        if not await tx.execute(Q["move_agent"], agent_id, agent.state.value, target.value, why):
            raise changed_meanwhile(agent, f"agent {agent.name}")
        moved = to_agent((await tx.fetch(Q["show_agents"], [agent_id]))[0])
        told = [events.agent_status(moved, AgentStatus.of(agent))]
        if target is AgentState.ARCHIVED:
            told.append(events.agent_archived(moved))
        await feed.append(tx, told)
        return moved

    async def _waiting(self, agent: Agent, after: UUID, reason: Reason, message: str) -> _Batch:
        """Cancel some of what waits; nothing of what came after somebody resumed the agent."""
        ended = Ended()

        async def cancel(tx: Tx) -> _Batch:
            ended.runs.clear()
            locks = LockOrder()
            await locks.take(tx, Level.AGENT, Q["lock_agents"], [agent.agent_id])
            rows = await tx.fetch(
                Q["open_wakeups_of_agent"], agent.agent_id, agent.state.value, after, _BATCH
            )
            pairs = [(row["wakeup_id"], row["issue_id"]) for row in rows]
            cancelled = await _cancel(tx, locks, pairs, reason, message, ended)
            return _Batch(cancelled, pairs[-1][0] if len(pairs) == _BATCH else None)

        batch = await retrying_transaction(self._db, cancel, repeatable=True)
        await tell_of_ends(self._db, self._notifier, self._spans, ended)
        return batch


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one transaction cancelled, and after which row the next goes on."""

    cancelled: set[UUID]
    last: UUID | None


async def _cancel(
    tx: Tx,
    locks: LockOrder,
    wakeups: list[tuple[UUID, UUID | None]],
    reason: Reason,
    message: str,
    ended: Ended,
) -> set[UUID]:
    """Cancel wakeups, all locks before the first of them; gives those that end."""
    issues = {issue_id for _, issue_id in wakeups if issue_id is not None}
    ids = [wakeup_id for wakeup_id, _ in wakeups]
    await locks.take(tx, Level.ISSUE, Q["lock_issues"], issues)
    await locks.take(tx, Level.WAKEUP, Q["lock_wakeups"], ids)
    rows = await tx.fetch(Q["find_wakeups"], ids)
    # One that joined another has ended with it when its turn comes.
    still_open = [row for row in rows if row["finished_at"] is None]
    runs = {row["run_id"] for row in still_open if row["run_id"] is not None}
    await locks.take(tx, Level.RUN, Q["lock_runs"], runs)
    return {
        wakeup_id
        for wakeup_id in sorted(row["wakeup_id"] for row in still_open)
        if await cancel_wakeup(tx, wakeup_id, reason, message, ended) is WakeupState.CANCELLED
    }


async def _require_no_squad(tx: Tx, agent: Agent) -> None:
    led = [row["name"] for row in await tx.fetch(Q["squads_led"], agent.agent_id)]
    if led:
        raise FailedPrecondition(
            "WRONG_STATE",
            f"agent {agent.name} leads {', '.join(led)}: archive the squad or give it another"
            " leader first",
            {"squads": ",".join(led)},
        )
