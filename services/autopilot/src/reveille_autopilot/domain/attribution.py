"""Who answers for a run, found by a fixed chain and never made up."""

from __future__ import annotations

from dataclasses import dataclass

from reveille_autopilot.domain.states import AttributionSource


@dataclass(frozen=True, slots=True)
class Publisher:
    """Somebody who published a trigger or a rule version."""

    user_id: str
    active_member: bool


@dataclass(frozen=True, slots=True)
class Candidates:
    """Who comes into question, in the order of the chain."""

    # The person who clicked; set only for a manual run, and then nobody else counts.
    clicker: Publisher | None = None
    trigger_publisher: Publisher | None = None
    rule_publisher: Publisher | None = None


@dataclass(frozen=True, slots=True)
class Attribution:
    """The person who answers for a run, and how that person was found."""

    accountable_user_id: str
    source: AttributionSource
    originator_user_id: str | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nobody can be named and nobody may be guessed."""

    message: str


def principal(candidates: Candidates) -> Publisher | None:
    """Find in whose name the agent is woken; None leaves it to the agent's own owner."""
    if candidates.clicker is not None:
        return candidates.clicker
    for publisher in (candidates.trigger_publisher, candidates.rule_publisher):
        if publisher is not None and publisher.active_member:
            return publisher
    return None


def invoker(candidates: Candidates) -> Publisher | None:
    """Find whose right to wake the agent counts: the principal's, else that of who published.

    Where they have all left, the agent's owner is charged. That must not set off what they could
    not while they were members: an agent which was not theirs to wake.
    """
    return principal(candidates) or candidates.trigger_publisher or candidates.rule_publisher


def attribute(
    candidates: Candidates, agent_owner_user_id: str | None, *, fail_closed: bool
) -> Attribution | Blocked:
    """Walk the chain: clicker, trigger publisher, rule publisher, owner of the agent."""
    found = principal(candidates)
    if found is not None:
        if found == candidates.clicker:
            return Attribution(found.user_id, AttributionSource.DIRECT_HUMAN, found.user_id)
        if found == candidates.trigger_publisher:
            return Attribution(found.user_id, AttributionSource.TRIGGER_OWNER)
        return Attribution(found.user_id, AttributionSource.RULE_OWNER)
    if fail_closed:
        return Blocked(
            "neither the trigger nor the rule has a publisher who is a member,"
            " and this workspace does not charge the agent's owner instead"
        )
    if not agent_owner_user_id:
        return Blocked("nobody who published the rule is a member, and the agent has no owner")
    return Attribution(agent_owner_user_id, AttributionSource.OWNER_FALLBACK)
