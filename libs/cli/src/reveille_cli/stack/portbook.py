"""The free ports that a data directory was given, so that the next stack on it has the same.

A webhook's address is shown once and pasted elsewhere; it must outlive a restart.
"""

from __future__ import annotations

from collections.abc import Mapping

from reveille_cli.stack.datadir import DataDir, read_json, write_json
from reveille_cli.stack.ports import PortKey, PortMap


def read_ports(data_dir: DataDir) -> dict[PortKey, int]:
    """Return the ports of earlier stacks; what cannot be read is forgotten."""
    document = read_json(data_dir.ports)
    found: dict[PortKey, int] = {}
    for entry in document if isinstance(document, list) else ():
        match entry:
            case {
                "service": str(service),
                "replica": int(replica),
                "container": int(container),
                "port": int(port),
            } if 0 < port <= 65_535:
                found[service, replica, container] = port
            case _:
                continue
    return found


def remember_ports(data_dir: DataDir, known: Mapping[PortKey, int], ports: PortMap) -> None:
    """Write the ports of this stack down; those of replicas that it does not run stay."""
    write_json(
        data_dir.ports,
        [
            {"service": service, "replica": replica, "container": container, "port": port}
            for (service, replica, container), port in {**known, **ports.assigned}.items()
        ],
    )
