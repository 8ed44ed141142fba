"""Gathers what every service has to say about an id, and about the ids it leads to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reveille_cli.apis import Service, explain_api
from reveille_cli.connection import Client
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure
from reveille_cli.jsonform import plain

MAX_IDS = 40
MAX_STEPS = 5
# Things that many occurrences share: told of on the way, but a way through only when asked about.
SHARED = frozenset({"agent", "autopilot", "hook", "job", "schedule", "trigger", "workspace"})


@dataclass(frozen=True, slots=True)
class Found:
    """One finding and the service that made it."""

    service: Service
    values: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, ...]:
        """What two equal findings share."""
        names = ("subject", "subject_id", "state", "reason", "text")
        return (self.service, *(str(self.values[name]) for name in names))


@dataclass(frozen=True, slots=True)
class Explanation:
    """All findings, newest first; what could not be asked; whether the walk was cut short."""

    asked: str
    findings: tuple[Found, ...]
    silent: Mapping[Service, Failure]
    cut: bool

    @property
    def subject(self) -> str:
        """What was asked about, as far as autopilot knows it; empty for anything else."""
        return next(
            (
                str(each.values["subject"])
                for each in self.findings
                if each.values["subject_id"] == self.asked and each.service is Service.AUTOPILOT
            ),
            "",
        )


def explain(client: Client, asked: str) -> Explanation:
    """Ask every service about an id, then about what its findings lead to, breadth first."""
    silent: dict[Service, Failure] = {}
    found: dict[tuple[str, ...], Found] = {}
    seen = {asked}
    waiting = deque([(asked, 0)])
    cut = False
    while waiting:
        some_id, steps = waiting.popleft()
        told = list(_ask_all(client, some_id, silent))
        if some_id != asked and _is_shared(told, some_id):
            _add(found, (each for each in told if each.values["subject_id"] == some_id))
            continue
        _add(found, told)
        for related in (each for finding in told for each in finding.values["related"]):
            if related in seen:
                continue
            if len(seen) >= MAX_IDS or steps >= MAX_STEPS:
                cut = True
                continue
            seen.add(related)
            waiting.append((related, steps + 1))
    newest = sorted(found.values(), key=lambda each: each.values["time"] or "", reverse=True)
    return Explanation(asked, tuple(newest), silent, cut)


def _ask_all(client: Client, some_id: str, silent: dict[Service, Failure]) -> Iterator[Found]:
    for service in Service:
        if service in silent:
            continue
        api = explain_api(service)
        try:
            response = client.call(api, "Explain", api.request("Explain", id=some_id))
        except Failure as failure:
            if failure.exit_code is ExitCode.REFUSED:
                raise
            silent[service] = failure
            continue
        for finding in response.findings:
            yield Found(service, plain(finding))


def _is_shared(told: Sequence[Found], some_id: str) -> bool:
    return any(
        each.values["subject"] in SHARED and each.values["subject_id"] == some_id for each in told
    )


def _add(found: dict[tuple[str, ...], Found], told: Iterable[Found]) -> None:
    for each in told:
        found.setdefault(each.key, each)
