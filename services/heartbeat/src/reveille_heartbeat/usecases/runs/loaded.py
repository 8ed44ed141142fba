"""All rows that an attempt is made of, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from reveille_heartbeat.domain.discussion import Comment
from reveille_heartbeat.domain.document import Joined, LeftOut
from reveille_heartbeat.domain.placing import MAX_JOINED, MAX_TOLD_BYTES
from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.values import Agent, Issue, Payload, Run, Wakeup
from reveille_heartbeat.store.issue_rows import to_comment
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_issue, to_payload, to_run, to_wakeup
from reveille_runtime.db import Tx


@dataclass(slots=True)
class Words:
    """What an agent is told: much of it, maybe, and in memory until the agent can read it."""

    prompt: str = ""
    payload: Payload = field(default_factory=Payload)
    joined: tuple[Joined, ...] = ()
    # What was said on the issue, and is to be answered.
    comments: tuple[Comment, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)

    @property
    def size(self) -> int:
        """About how many bytes it is."""
        return (
            len(self.prompt)
            + len(self.payload.body)
            + sum(len(each.prompt) + len(each.payload.body) for each in self.joined)
            + sum(len(each.body) for each in self.comments)
        )

    def forget(self) -> None:
        """Let go of it, whoever holds the attempt's rows for as long as that takes."""
        self.prompt, self.payload, self.joined, self.comments = "", Payload(), (), ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read together, in one snapshot or under the locks of the claim."""

    run: Run
    agent: Agent
    wakeup: Wakeup
    issue: Issue | None
    words: Words


async def load(tx: Tx, run_id: UUID) -> Loaded:
    """Read the rows of an attempt that somebody else began, who has told its agent all there is."""
    run = to_run((await tx.fetch(Q["find_runs"], [run_id]))[0])
    agent = to_agent((await tx.fetch(Q["find_agents"], [run.agent_id]))[0])
    wakeup = to_wakeup((await tx.fetch(Q["find_wakeups"], [run.wakeup_id]))[0])
    issues = await tx.fetch(Q["find_issues"], [run.issue_id]) if run.issue_id else []
    return Loaded(run, agent, wakeup, to_issue(issues[0]) if issues else None, Words())


# The last that joins a wake, or the last comment, may pass the bound at which a wake is full.
_MOST_BYTES = 2 * MAX_TOLD_BYTES


async def read_words(
    tx: Tx, wakeups: list[Wakeup], joined: WakeupState = WakeupState.COALESCED
) -> dict[UUID, Words]:
    """Read what the agents of these wakeups are told; `joined` is the state of what joined them.

    What is stored may be more than any run can be told, or we could hold: the oldest are told.
    """
    joined_to: dict[UUID, list[Wakeup]] = {}
    comments: dict[UUID, list[Comment]] = {}
    all_joined: dict[UUID, int] = {}
    all_comments: dict[UUID, int] = {}
    ids = [each.wakeup_id for each in wakeups]
    for row in await tx.fetch(Q["joined_to_wakeups"], ids, MAX_JOINED, _MOST_BYTES, joined.value):
        target: UUID = row["joined_wakeup_id"]
        joined_to.setdefault(target, []).append(to_wakeup(row))
        all_joined[target] = row["all_joined"]
    spoken = [each.wakeup_id for each in wakeups if each.comment_ids]
    rows = await tx.fetch(Q["comments_for_wakeups"], spoken, _MOST_BYTES) if spoken else []
    for row in rows:
        comments.setdefault(row["told_to"], []).append(to_comment(row))
        all_comments[row["told_to"]] = row["all_comments"]
    ids += [each.wakeup_id for many in joined_to.values() for each in many]
    said = {row["wakeup_id"]: to_payload(row) for row in await tx.fetch(Q["find_payloads"], ids)}
    words: dict[UUID, Words] = {}
    for wakeup_id in (each.wakeup_id for each in wakeups):
        together = joined_to.get(wakeup_id, [])
        heard = comments.get(wakeup_id, [])
        words[wakeup_id] = Words(
            *said[wakeup_id],
            tuple(Joined(each, *said[each.wakeup_id]) for each in together),
            tuple(heard),
            LeftOut(
                all_joined.get(wakeup_id, 0) - len(together),
                all_comments.get(wakeup_id, 0) - len(heard),
            ),
        )
    return words
