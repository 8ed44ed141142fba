"""docker-compose.yml as values: the part of the file that a local run can honour.

Reads and checks; decides nothing about ports, folders or processes.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import yaml
from dotenv import dotenv_values

from reveille_cli.stack.errors import ComposeInvalid
from reveille_cli.stack.interpolate import interpolate, variables_in

COMPOSE_FILE = "docker-compose.yml"
SECRETS_ROOT = "/run/secrets"
_LAST_PORT = 65_535
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Condition(StrEnum):
    """What a dependency must have reached before its dependent starts."""

    STARTED = "service_started"
    HEALTHY = "service_healthy"
    COMPLETED = "service_completed_successfully"


@dataclass(frozen=True, slots=True)
class PublishedPort:
    """One port of a container and the port of this machine it is published on."""

    host: int
    container: int
    variable: str = ""
    """The variable with which the file lets the port of this machine be changed."""


@dataclass(frozen=True, slots=True)
class Service:
    """One service of the file, interpolated."""

    name: str
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    depends_on: Mapping[str, Condition]
    ports: tuple[PublishedPort, ...]
    secrets: Mapping[str, Path]
    volumes: Mapping[str, str]
    stop_grace: float

    @property
    def is_database(self) -> bool:
        """Whether this service is the PostgreSQL server, which a local run brings itself."""
        return re.split(r"[:@]", self.image, maxsplit=1)[0].rsplit("/", 1)[-1] == "postgres"


@dataclass(frozen=True, slots=True)
class Compose:
    """The services of one file, in an order in which each follows what it depends on."""

    path: Path
    services: Mapping[str, Service]
    order: tuple[str, ...] = field(default=())

    @property
    def database(self) -> Service | None:
        """The PostgreSQL service, if the file has one."""
        return next((item for item in self.services.values() if item.is_database), None)

    def runnable(self) -> list[Service]:
        """Return the services that become processes, dependencies first."""
        return [self.services[name] for name in self.order if not self.services[name].is_database]

    def is_one_shot(self, name: str) -> bool:
        """Tell whether others wait for this service to end, rather than to be ready."""
        return any(
            service.depends_on.get(name) is Condition.COMPLETED
            for service in self.services.values()
        )

    def stop_levels(self) -> list[list[str]]:
        """Return the services in the order of a shutdown: dependents before what they call."""
        depth: dict[str, int] = {}
        for name in self.order:
            above = [depth[other] for other in self.services[name].depends_on]
            depth[name] = 1 + max(above, default=-1)
        deepest = max(depth.values(), default=-1)
        levels = [
            [name for name in self.order if depth[name] == level]
            for level in range(deepest, -1, -1)
        ]
        return [level for level in levels if level]


def find_compose_file(start: Path) -> Path:
    """Return the nearest docker-compose.yml: above `start`, else above this package."""
    for origin in (start, Path(__file__)):
        for folder in (origin, *origin.parents):
            candidate = folder / COMPOSE_FILE
            if candidate.is_file() and _is_ours(candidate):
                return candidate
    raise ComposeInvalid(
        f"no {COMPOSE_FILE} of Reveille in {start} or above it",
        hint="name the file with --file",
    )


def _is_ours(path: Path) -> bool:
    # A stranger's compose file may well lie above the current folder.
    return "reveille_scheduler" in path.read_text(encoding="utf-8", errors="replace")


def read_compose(path: Path, variables: Mapping[str, str]) -> Compose:
    """Read the file; `variables` win over the environment, which wins over `.env` beside it."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ComposeInvalid(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ComposeInvalid(f"{path} is not YAML: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("services"), dict):
        raise ComposeInvalid(f"{path} declares no services")
    beside = {k: v for k, v in dotenv_values(path.parent / ".env").items() if v is not None}
    known = {**beside, **os.environ, **variables}
    tree = _interpolated(document, known)
    files = _secret_files(tree.get("secrets") or {}, path.parent)
    services = {
        name: _service(name, body, document["services"][name], files, path.parent)
        for name, body in tree["services"].items()
        if not body.get("profiles")
    }
    _refuse_shared_ports(services.values())
    return Compose(path=path, services=services, order=_order(services))


def _interpolated(node: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(node, str):
        return interpolate(node, variables)
    if isinstance(node, dict):
        return {key: _interpolated(value, variables) for key, value in node.items()}
    if isinstance(node, list):
        return [_interpolated(value, variables) for value in node]
    return node


def _order(services: Mapping[str, Service]) -> tuple[str, ...]:
    for service in services.values():
        for other in service.depends_on:
            if other not in services:
                raise ComposeInvalid(f"{service.name} depends on {other}, which is not a service")
    graph = {name: list(service.depends_on) for name, service in services.items()}
    try:
        return tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ComposeInvalid(f"services wait for each other: {' → '.join(error.args[1])}") from None


def _secret_files(body: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for name, secret in body.items():
        if not isinstance(secret, dict) or "file" not in secret:
            raise ComposeInvalid(f"secret {name} must come from a file")
        files[name] = folder / secret["file"]
    return files


def _refuse_shared_ports(services: Iterable[Service]) -> None:
    taken: dict[int, str] = {}
    for service in services:
        for port in service.ports:
            who = f"{service.name} ({port.variable})" if port.variable else service.name
            if port.host in taken:
                raise ComposeInvalid(
                    f"{taken[port.host]} and {who} both want port {port.host}",
                    hint="give each a port of its own",
                )
            taken[port.host] = who


def _service(
    name: str,
    body: Mapping[str, Any],
    written: Mapping[str, Any],
    files: Mapping[str, Path],
    folder: Path,
) -> Service:
    return Service(
        name=name,
        image=str(body.get("image", "")),
        command=_words(body.get("command")),
        environment=_environment(name, body, folder),
        depends_on=_depends_on(name, body.get("depends_on") or {}),
        ports=tuple(
            _port(name, item, raw)
            for item, raw in zip(body.get("ports") or (), written.get("ports") or (), strict=True)
        ),
        secrets=dict(_secrets(name, body.get("secrets") or (), files)),
        volumes=dict(_volumes(name, body.get("volumes") or ())),
        stop_grace=_seconds(name, body.get("stop_grace_period", "10s")),
    )


def _words(command: Any) -> tuple[str, ...]:
    if command is None:
        return ()
    if isinstance(command, str):
        return tuple(shlex.split(command))
    return tuple(str(word) for word in command)


def _environment(name: str, body: Mapping[str, Any], folder: Path) -> dict[str, str]:
    result: dict[str, str] = {}
    for item in body.get("env_file") or ():
        entry = item if isinstance(item, dict) else {"path": item}
        file = folder / entry["path"]
        if file.is_file():
            result |= {key: value or "" for key, value in dotenv_values(file).items()}
        elif entry.get("required", True):
            raise ComposeInvalid(f"{name} needs the file {file}")
    environment = body.get("environment") or {}
    if isinstance(environment, list):
        environment = dict(str(item).partition("=")[::2] for item in environment)
    for key, value in environment.items():
        if value is not None:
            result[key] = _scalar(value)
    return result


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _depends_on(name: str, body: Any) -> dict[str, Condition]:
    if isinstance(body, list):
        return dict.fromkeys(body, Condition.STARTED)
    try:
        return {
            other: Condition((entry or {}).get("condition", Condition.STARTED))
            for other, entry in body.items()
        }
    except ValueError as error:
        raise ComposeInvalid(
            f"{name} depends on another service in an unknown way: {error}"
        ) from None


def _port(name: str, item: Any, written: Any) -> PublishedPort:
    """Read one port; `written` is the same before its variables were replaced."""
    if isinstance(item, dict):
        host, container = str(item.get("published", "")), str(item.get("target", ""))
        variables = variables_in(str(written.get("published", "")))
    else:
        parts = ["", "", *str(item).removesuffix("/tcp").split(":")]
        host, container = parts[-2], parts[-1]
        variables = variables_in(str(written).rpartition(":")[0])
    variable = variables[-1] if variables else ""
    if variable and not _is_port(host):
        raise ComposeInvalid(
            f"{variable}={host} is no port for {name}: it must be a number from 1 to {_LAST_PORT}",
            hint=f"unset {variable} for the usual port",
        )
    if not _is_port(host) or not _is_port(container):
        raise ComposeInvalid(
            f"{name} publishes {item!r}, which names no fixed port of this machine",
            hint=f"write it as 127.0.0.1:HOST:CONTAINER, each from 1 to {_LAST_PORT}",
        )
    return PublishedPort(host=int(host), container=int(container), variable=variable)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= _LAST_PORT


def _secrets(
    name: str, body: Iterable[Any], files: Mapping[str, Path]
) -> Iterable[tuple[str, Path]]:
    for item in body:
        source = str(item["source"] if isinstance(item, dict) else item)
        target = str(item.get("target", source)) if isinstance(item, dict) else source
        if source not in files:
            raise ComposeInvalid(f"{name} uses the secret {source}, which is not declared")
        yield target if target.startswith("/") else f"{SECRETS_ROOT}/{target}", files[source]


def _volumes(name: str, body: Iterable[Any]) -> Iterable[tuple[str, str]]:
    for item in body:
        if isinstance(item, dict):
            source, target = str(item.get("source", "")), str(item["target"])
        else:
            source, _, rest = str(item).partition(":")
            target = rest.partition(":")[0]
        if not source or not target:
            raise ComposeInvalid(f"{name} mounts {item!r}, which names no volume")
        yield target, source


def _seconds(name: str, text: object) -> float:
    parts = _DURATION_PART.findall(str(text))
    if not parts or "".join(number + unit for number, unit in parts) != str(text):
        raise ComposeInvalid(f"{name} has the duration {text!r}", hint="write it as 15s or 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
