"""Which port of this machine stands for which port of a container.

A port that is handed out is also held, by a socket that is bound but never listens: no other
program can be given it, while the service itself, binding with SO_REUSEADDR as servers do, still
can. So a free port stays ours before the service has started and while it is being restarted.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from reveille_cli.stack.compose import Compose, PublishedPort, Service
from reveille_cli.stack.errors import PortTaken

LOOPBACK = "127.0.0.1"
_LISTENED = re.compile(r"(?<![\w.])0\.0\.0\.0:(\d+)")


PortKey = tuple[str, int, int]
"""Service, replica, container port."""


@dataclass(frozen=True, slots=True)
class PortMap:
    """Ports of this machine by what listens on them, and by published port."""

    assigned: Mapping[PortKey, int]
    published: Mapping[int, int]

    def of(self, service: str, replica: int, container: int) -> int | None:
        """Return the port of this machine, if that replica listens on the container port."""
        return self.assigned.get((service, replica, container))


class PortHolder:
    """Holds ports until the stack ends."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def hold(self, port: int = 0) -> int:
        """Bind the port (0: any free one) and return it; raises OSError when it is taken."""
        # The kernel would give it to us twice, as nothing listens on it yet.
        if port and port in {held.getsockname()[1] for held in self._sockets}:
            raise OSError(errno.EADDRINUSE, "held already")
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((LOOPBACK, port))
        except OSError:
            holder.close()
            raise
        self._sockets.append(holder)
        return int(holder.getsockname()[1])

    def close(self) -> None:
        """Let every port go."""
        while self._sockets:
            self._sockets.pop().close()


def listened_ports(service: Service) -> list[int]:
    """Return the container's ports: what it publishes, and what its settings tell it to bind."""
    bound = [
        int(port) for value in service.environment.values() for port in _LISTENED.findall(value)
    ]
    return sorted({*(port.container for port in service.ports), *bound})


def assign_ports(
    compose: Compose,
    scale: Mapping[str, int],
    holder: PortHolder,
    *,
    free: bool,
    remembered: Mapping[PortKey, int] | None = None,
) -> PortMap:
    """Give every replica its ports: the first the published ones unless `free`, others free.

    A free port is the remembered one, as long as nobody else has taken it.
    """
    known = remembered or {}
    hosts = {
        (service.name, port.container): port
        for service in compose.runnable()
        for port in service.ports
    }
    wanted: dict[PortKey, PublishedPort | None] = {}
    for service in compose.runnable():
        for replica in range(1, scale.get(service.name, 1) + 1):
            for container in listened_ports(service):
                fixed = None if free or replica > 1 else hosts.get((service.name, container))
                wanted[service.name, replica, container] = fixed
    assigned: dict[PortKey, int] = {}
    # First those that are not ours to choose, lest a free choice takes one of them.
    for key, fixed in sorted(wanted.items(), key=lambda item: not (item[1] or item[0] in known)):
        if fixed is not None:
            assigned[key] = _hold(holder, fixed, key[0])
        else:
            assigned[key] = _hold_free(holder, known.get(key))
    published = {
        port.host: assigned[name, 1, container] for (name, container), port in hosts.items()
    }
    return PortMap(assigned=assigned, published=published)


def _hold_free(holder: PortHolder, remembered: int | None) -> int:
    if remembered is not None:
        with suppress(OSError):
            return holder.hold(remembered)
    return holder.hold()


def _hold(holder: PortHolder, wanted: PublishedPort, service: str) -> int:
    try:
        return holder.hold(wanted.host)
    except OSError as error:
        raise PortTaken(
            f"port {wanted.host} on {LOOPBACK}, which {service} listens on, {_problem(error)}",
            hint=_change(wanted),
        ) from error


def _problem(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "is taken"
    if isinstance(error, PermissionError):
        return "needs privileges that this user does not have"
    return f"cannot be used: {error.strerror}"


def _change(port: PublishedPort) -> str:
    other = f"with {port.variable}=PORT" if port.variable else "in the compose file"
    return (
        f"stop what listens there, choose another port {other}, "
        "or take free ports with --free-ports"
    )
