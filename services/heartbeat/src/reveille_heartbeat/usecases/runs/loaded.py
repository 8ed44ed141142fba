"""All rows that an attempt is made of, as one value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.discussion import Comment
from reveille_heartbeat.domain.document import Joined
from reveille_heartbeat.domain.values import Agent, Issue, Payload, Run, Wakeup
from reveille_heartbeat.store.issue_rows import to_comment
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_issue, to_payload, to_run, to_wakeup
from reveille_runtime.db import Tx


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read together, in one snapshot or under the locks of the claim."""

    run: Run
    agent: Agent
    wakeup: Wakeup
    issue: Issue | None
    prompt: str
    payload: Payload
    joined: tuple[Joined, ...]
    # What was said on the issue, and is to be answered.
    comments: tuple[Comment, ...] = ()


async def load(tx: Tx, run_id: UUID) -> Loaded:
    """Read the rows of an attempt that somebody else began."""
    run = to_run((await tx.fetch(Q["find_runs"], [run_id]))[0])
    agent = to_agent((await tx.fetch(Q["find_agents"], [run.agent_id]))[0])
    wakeup = to_wakeup((await tx.fetch(Q["find_wakeups"], [run.wakeup_id]))[0])
    issues = await tx.fetch(Q["find_issues"], [run.issue_id]) if run.issue_id else []
    words = await read_words(tx, [wakeup])
    issue = to_issue(issues[0]) if issues else None
    return Loaded(run, agent, wakeup, issue, *words[wakeup.wakeup_id])


Words = tuple[str, Payload, tuple[Joined, ...], tuple[Comment, ...]]


async def read_words(tx: Tx, wakeups: list[Wakeup]) -> dict[UUID, Words]:
    """Read what agents are told for these wakeups: prompt, payload, what joined each, comments."""
    joined_to: dict[UUID, list[Wakeup]] = {}
    ids = [each.wakeup_id for each in wakeups]
    for row in await tx.fetch(Q["joined_to_wakeups"], ids):
        each = to_wakeup(row)
        if each.joined_wakeup_id is not None:
            joined_to.setdefault(each.joined_wakeup_id, []).append(each)
    ids += [each.wakeup_id for many in joined_to.values() for each in many]
    said = {row["wakeup_id"]: to_payload(row) for row in await tx.fetch(Q["find_payloads"], ids)}
    comments = await _comments(tx, {one for wakeup in wakeups for one in wakeup.comment_ids})
    return {
        wakeup.wakeup_id: (
            *said[wakeup.wakeup_id],
            tuple(
                Joined(each, *said[each.wakeup_id]) for each in joined_to.get(wakeup.wakeup_id, ())
            ),
            tuple(comments[each] for each in wakeup.comment_ids if each in comments),
        )
        for wakeup in wakeups
    }


async def _comments(tx: Tx, ids: Collection[UUID]) -> dict[UUID, Comment]:
    rows = await tx.fetch(Q["find_comments"], sorted(ids)) if ids else []
    return {row["comment_id"]: to_comment(row) for row in rows}
