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
from dataclasses import dataclass

from reveille_cli.stack.compose import Compose, Service
from reveille_cli.stack.errors import PortTaken

LOOPBACK = "127.0.0.1"
_LISTENED = re.compile(r"(?<![\w.])0\.0\.0\.0:(\d+)")


@dataclass(frozen=True, slots=True)
class PortMap:
    """Ports of this machine by (service, replica, container port), and by published port."""

    assigned: Mapping[tuple[str, int, int], int]
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
    compose: Compose, scale: Mapping[str, int], holder: PortHolder, *, free: bool
) -> PortMap:
    """Give every replica its ports: the first the published ones unless `free`, others free."""
    assigned: dict[tuple[str, int, int], int] = {}
    published: dict[int, int] = {}
    for service in compose.runnable():
        hosts = {port.container: port.host for port in service.ports}
        for replica in range(1, scale.get(service.name, 1) + 1):
            for container in listened_ports(service):
                wanted = 0 if free or replica > 1 else hosts.get(container, 0)
                port = _hold(holder, wanted, service)
                assigned[service.name, replica, container] = port
                if replica == 1 and container in hosts:
                    published[hosts[container]] = port
    return PortMap(assigned=assigned, published=published)


def _hold(holder: PortHolder, wanted: int, service: Service) -> int:
    try:
        return holder.hold(wanted)
    except PermissionError as error:
        raise PortTaken(
            f"port {wanted} of {service.name} needs privileges this user does not have",
            hint=_change(service, wanted),
        ) from error
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortTaken(
            f"port {wanted} on {LOOPBACK}, which {service.name} listens on, is taken",
            hint=_change(service, wanted),
        ) from error


def _change(service: Service, port: int) -> str:
    return (
        f"stop what listens there, choose another port with {port_variable(service, port)}=PORT, "
        "or take free ports with --free-ports"
    )


def port_variable(service: Service, host: int) -> str:
    """Return the variable with which docker-compose.yml lets a published port be changed."""
    first = service.ports[0].host if service.ports else host
    kind = "PORT" if host == first else "HTTP_PORT"
    return f"{service.name.replace('-', '_').upper()}_{kind}"
