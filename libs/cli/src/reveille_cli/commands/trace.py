"""`reveille trace`: the tree of a trace, from the files that the processes of a stack write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from reveille_cli.apis import AGENT_RUNS, AUTOPILOTS, DELIVERIES, SCHEDULER, WAKEUPS, Api
from reveille_cli.build import session
from reveille_cli.connection import Client
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.printer import Printer, table_of
from reveille_cli.spans import LOST, Node, Span, SpanLink, Trace, read_trace
from reveille_cli.times import rfc3339

TRACE_ID = re.compile(r"[0-9a-f]{32}")
# All but the status, which may bring the words of an error.
_UNFOLDED = (0, 1, 2, 3, 5)
LINK_KIND = "reveille.link.kind"
# A service that knows no such id, or takes it for none, leaves the word to the next.
_PASSED_OVER = frozenset({ExitCode.NOT_FOUND, ExitCode.NOT_ALLOWED, ExitCode.REFUSED})
# Where an id may lead to a trace: API, RPC, its id field, and the field of the answer.
_HOLDERS: tuple[tuple[Api, str, str, str], ...] = (
    (AUTOPILOTS, "GetRun", "run_id", "run"),
    (DELIVERIES, "GetDelivery", "delivery_id", "delivery"),
    (AGENT_RUNS, "GetRun", "run_id", "run"),
    (WAKEUPS, "GetWakeup", "wakeup_id", "wakeup"),
    (SCHEDULER, "GetExecution", "execution_id", "execution"),
)


def trace(
    some_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A run, a delivery, an agent run, a wakeup, an execution, or a trace id"
            " (32 hexadecimal digits).",
        ),
    ],
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Show everything that happened for one trigger, across all services, as a tree.

    A span that others name as their parent but that its process never wrote is a lost span.
    """
    with session(data_dir, output) as (client, printer):
        trace_id = find_trace_id(client, some_id)
        found = read_trace(client.data_dir.otlp, trace_id)
        if found is None:
            raise Failure(
                "trace_not_found",
                f"no span of trace {trace_id} is in {client.data_dir.otlp}",
                ExitCode.NOT_FOUND,
                hint="spans are written some seconds after they end, and only by `reveille up`;"
                " elsewhere OTEL_EXPORTER_OTLP_ENDPOINT says where they go",
            )
        if printer.as_json:
            printer.document(trace_json(found))
        else:
            show_trace(found, printer)


def find_trace_id(client: Client, some_id: str) -> str:
    """Return the trace an id belongs to, asking the services for what is no trace id itself."""
    if TRACE_ID.fullmatch(some_id.lower()):
        return some_id.lower()
    missed: Failure | None = None
    for api, rpc, field, answer in _HOLDERS:
        try:
            response = client.call(api, rpc, api.request(rpc, **{field: some_id}))
        except Failure as failure:
            if failure.exit_code is ExitCode.UNAVAILABLE:
                missed = missed or failure
            elif failure.exit_code not in _PASSED_OVER:
                raise
            continue
        trace_id: str = getattr(response, answer).trace_id
        if trace_id:
            return trace_id
        raise Failure("trace_not_found", f"{some_id} has no trace", ExitCode.NOT_FOUND)
    if missed is not None:
        raise missed
    raise Failure(
        "not_found",
        f"{some_id} is no run, delivery, agent run, wakeup or execution that you may see",
        ExitCode.NOT_FOUND,
        hint="give the id of one of these, or a trace id: 32 hexadecimal digits;"
        " `reveille why` takes any id",
    )


def show_trace(found: Trace, printer: Printer) -> None:
    """Print a trace as a tree with its services and times."""
    services = {span.service for span in found.spans}
    lost = f", {found.lost} lost" if found.lost else ""
    printer.draw(
        Text(
            f"trace {found.trace_id}: {len(found.spans)} spans{lost} in {len(services)} services,"
            f" {milliseconds(found.end - found.start)}, began {_moment(found.start)}"
        )
    )
    headings = ("SPAN", "SERVICE", "START", "TIME", "STATUS", "LINKS")
    rows = [_row(guide, node, found) for guide, node in _lines(found.roots)]
    printer.draw(table_of(headings, rows, fixed=_UNFOLDED))
    if found.linked_from:
        printer.text("")
        headings = ("LINKED FROM", "SERVICE", "START", "TIME", "STATUS", "TRACE")
        rows = [(span.name, *_facts(span, found), span.trace_id) for span in found.linked_from]
        printer.draw(table_of(headings, rows, fixed=_UNFOLDED))


def trace_json(found: Trace) -> dict[str, Any]:
    """Return a trace as JSON: trees of nested objects."""
    return {
        "trace_id": found.trace_id,
        "start_time": _moment(found.start),
        "duration_ms": _ms(found.end - found.start),
        "services": sorted({span.service for span in found.spans}),
        "spans": len(found.spans),
        "lost": found.lost,
        "roots": [_node_json(root, found.start) for root in found.roots],
        "linked_from": [_span_json(span, found.start) for span in found.linked_from],
    }


def milliseconds(nanoseconds: int) -> str:
    """Write a length of time, as exact as it is worth reading."""
    value = nanoseconds / 1e6
    if abs(value) >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if abs(value) >= 100 else f"{value:.1f} ms"


def _lines(roots: tuple[Node, ...]) -> Iterator[tuple[str, Node]]:
    """Yield every node with the lines that lead to it."""
    for root in roots:
        yield "", root
        yield from _below(root, "")


def _below(node: Node, indent: str) -> Iterator[tuple[str, Node]]:
    for index, child in enumerate(node.children):
        last = index == len(node.children) - 1
        yield f"{indent}{'└─ ' if last else '├─ '}", child
        yield from _below(child, f"{indent}{'   ' if last else '│  '}")


def _row(guide: str, node: Node, found: Trace) -> tuple[Text | str, ...]:
    if node.span is None:
        return (Text(f"{guide}{LOST}", style="yellow"), "", "", "", f"id {node.span_id}", "")
    return (
        Text(guide, style="dim").append(node.span.name, style="bold"),
        *_facts(node.span, found),
        ", ".join(_link(link, found) for link in node.span.links),
    )


def _facts(span: Span, found: Trace) -> tuple[Text | str, ...]:
    status = Text("ok", style="green")
    if span.error:
        status = Text(f"error: {span.message}" if span.message else "error", style="bold red")
    start = f"+{milliseconds(span.start - found.start)}".replace("+-", "-")
    return span.service, start, milliseconds(span.end - span.start), status


def _link(link: SpanLink, found: Trace) -> str:
    kind = str(link.attributes.get(LINK_KIND, "")) or "link"
    where = "" if link.trace_id == found.trace_id else f" to trace {link.trace_id}"
    return f"{kind}{where}"


def _node_json(node: Node, origin: int) -> dict[str, Any]:
    children = [_node_json(child, origin) for child in node.children]
    if node.span is None:
        return {"name": LOST, "lost": True, "span_id": node.span_id, "children": children}
    return {**_span_json(node.span, origin), "lost": False, "children": children}


def _span_json(span: Span, origin: int) -> dict[str, Any]:
    return {
        "name": span.name,
        "service": span.service,
        "kind": span.kind,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_id or None,
        "start_time": _moment(span.start),
        "offset_ms": _ms(span.start - origin),
        "duration_ms": _ms(span.end - span.start),
        "status": "error" if span.error else "ok",
        "status_message": span.message,
        "attributes": dict(span.attributes),
        "events": [
            {"name": each.name, "time": _moment(each.time), "attributes": dict(each.attributes)}
            for each in span.events
        ],
        "links": [
            {
                "trace_id": each.trace_id,
                "span_id": each.span_id,
                "attributes": dict(each.attributes),
            }
            for each in span.links
        ],
    }


def _moment(nanoseconds: int) -> str:
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    return rfc3339(datetime.fromtimestamp(whole, UTC).replace(microsecond=rest // 1000))


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 3)
