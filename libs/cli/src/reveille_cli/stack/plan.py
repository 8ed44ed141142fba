"""What to start: one launch per replica, complete, before anything runs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reveille_cli.stack.compose import Compose, Service
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import ComposeInvalid
from reveille_cli.stack.localize import Localizer
from reveille_cli.stack.ports import LOOPBACK, PortMap

ALL_SERVICES = "*"
MARKER_VARIABLE = "STACK_DATA_DIR"
"""Set in every process we start: how leftovers of a killed supervisor are known."""
PUBLIC_URL_VARIABLE = "REVEILLE_PUBLIC_URL"
"""The setting that says where senders of webhooks reach this stack."""

_LISTEN = re.compile(r"REVEILLE_(?:(\w+)_)?LISTEN")
_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|SSL_CERT_\w+|PYTHONPATH|VIRTUAL_ENV|OTEL_\w+"
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One process to be."""

    name: str
    service: str
    replica: int
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    folder: Path
    addresses: Mapping[str, str]
    one_shot: bool
    stop_grace: float

    @property
    def health_address(self) -> str | None:
        """Where to ask whether it serves; None for a process that only has to live."""
        return self.addresses.get("grpc")


def make_launches(
    compose: Compose,
    ports: PortMap,
    data_dir: DataDir,
    localizer: Localizer,
    *,
    scale: Mapping[str, int],
    overrides: Mapping[str, Mapping[str, str]],
) -> list[Launch]:
    """Return every process of the stack, dependencies first."""
    base = inherited_environment(os.environ)
    base |= {
        "PYTHONUNBUFFERED": "1",
        "REVEILLE_OTLP_DIR": str(data_dir.otlp),
        MARKER_VARIABLE: str(data_dir.root),
    }
    return [
        _launch(compose, service, replica, ports, data_dir, localizer, base, overrides)
        for service in compose.runnable()
        for replica in range(1, scale.get(service.name, 1) + 1)
    ]


def hooks_url(launches: Iterable[Launch]) -> str:
    """Return where webhooks are posted, up to the token; empty when no service says."""
    said = (launch.environment.get(PUBLIC_URL_VARIABLE, "") for launch in launches)
    base = next((url for url in said if url), "")
    return f"{base.rstrip('/')}/hooks/" if base else ""


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of our environment that services get: not REVEILLE_*, which the file sets."""
    return {key: value for key, value in environment.items() if _INHERITED.fullmatch(key)}


def process_name(service: str, replica: int) -> str:
    """Name a replica: the first like its service, others with their number."""
    return service if replica == 1 else f"{service}-{replica}"


def check_scale(compose: Compose, scale: Mapping[str, int]) -> None:
    """Refuse replicas of what is not a service, or fewer than one."""
    names = [item.name for item in compose.runnable() if not compose.is_one_shot(item.name)]
    for name, count in scale.items():
        if name not in names:
            raise ComposeInvalid(
                f"cannot scale {name}: it is no service of {compose.path.name}",
                hint=f"services are {', '.join(names)}",
            )
        if count < 1:
            raise ComposeInvalid(f"cannot scale {name} to {count}: at least one is needed")


def _launch(
    compose: Compose,
    service: Service,
    replica: int,
    ports: PortMap,
    data_dir: DataDir,
    localizer: Localizer,
    base: Mapping[str, str],
    overrides: Mapping[str, Mapping[str, str]],
) -> Launch:
    if not service.command:
        raise ComposeInvalid(f"{service.name} has no command, so it cannot run without Docker")
    name = process_name(service.name, replica)
    own = {
        key: localizer.value(value, service, replica) for key, value in service.environment.items()
    }
    chosen = {
        **overrides.get(ALL_SERVICES, {}),
        **overrides.get(service.name, {}),
        **overrides.get(name, {}),
    }
    words = [localizer.value(word, service, replica) for word in service.command]
    if words[0] in {"python", "python3"}:
        words[0] = sys.executable
    return Launch(
        name=name,
        service=service.name,
        replica=replica,
        argv=tuple(words),
        environment={**base, **own, **chosen},
        log=data_dir.log(name),
        folder=data_dir.root,
        addresses=_addresses(service, replica, own, ports),
        one_shot=compose.is_one_shot(service.name),
        stop_grace=service.stop_grace,
    )


def _addresses(
    service: Service, replica: int, environment: Mapping[str, str], ports: PortMap
) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in environment.items():
        if match := _LISTEN.fullmatch(key):
            found[(match.group(1) or "grpc").lower()] = value
    if not found:
        for port in service.ports:
            found["port"] = f"{LOOPBACK}:{ports.of(service.name, replica, port.container)}"
    return found
