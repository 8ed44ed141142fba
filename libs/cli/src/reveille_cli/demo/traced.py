"""What the demo holds against the traces: one unbroken way from the trigger to the agent. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reveille_cli.apis import Service
from reveille_cli.demo.checks import Check
from reveille_cli.demo.stage import TRIAGE
from reveille_cli.demo.story import RunStory, Story
from reveille_cli.spans import LOST, Node, Trace
from reveille_runtime.carrier import TRACEPARENT, SpanSeed
from reveille_runtime.semconv import SPAN_WEBHOOK, invoke_agent_span

SPAN_SCHEDULE = "schedule "
_RUN = "autopilot.run"


@dataclass(frozen=True, slots=True)
class Way:
    """Where a trace has to lead: from a root, through services, to an agent."""

    root: str
    service: Service
    agent: str
    services: frozenset[Service]


WEBHOOK = Way(
    SPAN_WEBHOOK,
    Service.WEBHOOK,
    TRIAGE,
    frozenset({Service.WEBHOOK, Service.AUTOPILOT, Service.HEARTBEAT}),
)
SCHEDULE = Way(
    SPAN_SCHEDULE,
    Service.SCHEDULER,
    TRIAGE,
    frozenset({Service.SCHEDULER, Service.AUTOPILOT, Service.HEARTBEAT}),
)


def is_whole(trace: Trace | None) -> bool:
    """Tell whether everything has been written: the agent, the run around it, nothing lost."""
    if trace is None or trace.lost:
        return False
    names = [span.name for span in trace.spans]
    return _RUN in names and any(name.startswith(invoke_agent_span("")) for name in names)


def check_traces(story: Story) -> Iterator[Check]:
    """Judge the traces of the webhook and of the schedule."""
    yield from _way(WEBHOOK, story.webhook, story.delivery.trace_id if story.delivery else "")
    yield from _way(SCHEDULE, story.schedule, story.execution.trace_id if story.execution else "")


def way_to(trace: Trace, name: str) -> list[Node]:
    """Return the nodes from a root down to the first span of this name; empty without one."""
    for root in trace.roots:
        found = _below(root, name)
        if found:
            return found
    return []


def _below(node: Node, name: str) -> list[Node]:
    if node.span is not None and node.span.name == name:
        return [node]
    for child in node.children:
        found = _below(child, name)
        if found:
            return [node, *found]
    return []


def _way(way: Way, seen: RunStory | None, origin: str) -> Iterator[Check]:
    trace = seen.trace if seen else None
    agent = invoke_agent_span(way.agent)
    nodes = way_to(trace, agent) if trace else []
    first = nodes[0].span if nodes else None
    yield Check(
        f"one trace leads from {way.root.strip()} to {agent}, and no span of it is lost",
        trace is not None
        and origin == trace.trace_id
        and trace.lost == 0
        and first is not None
        and first.name.startswith(way.root)
        and first.service == way.service
        and not first.parent_id,
        _shown(trace, nodes, origin),
    )
    took_part = {span.service for span in trace.spans} if trace else set()
    yield Check(
        f"{', '.join(sorted(way.services))} each have their part in it",
        way.services <= took_part,
        f"only {', '.join(sorted(took_part)) or 'nobody'}",
    )
    told = str(seen.answer.get(TRACEPARENT, "")) if seen else ""
    carried = SpanSeed.from_carrier({TRACEPARENT: told})
    last = nodes[-1].span if nodes else None
    yield Check(
        f"the agent's own TRACEPARENT names that trace, and {agent} as its parent",
        carried is not None
        and last is not None
        and f"{carried.trace_id:032x}" == last.trace_id
        and f"{carried.span_id:016x}" == last.span_id,
        told or "the agent had none",
    )


def _shown(trace: Trace | None, nodes: list[Node], origin: str) -> str:
    if trace is None:
        return "no trace"
    way = " > ".join(node.span.name if node.span else LOST for node in nodes) or "no agent"
    return f"trace {trace.trace_id}, begun as {origin or 'nothing'}: {way}, {trace.lost} lost"
