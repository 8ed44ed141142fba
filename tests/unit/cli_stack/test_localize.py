"""A compose file's addresses and paths, as this machine needs them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import yaml

from reveille_cli.stack.compose import Compose, read_compose
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import ComposeInvalid, StackError
from reveille_cli.stack.localize import DatabaseAddress, Localizer
from reveille_cli.stack.plan import inherited_environment, make_launches
from reveille_cli.stack.ports import LOOPBACK, PortHolder, PortMap, assign_ports, listened_ports

SERVICES = {
    "postgres": {
        "image": "postgres:18",
        "environment": {"POSTGRES_USER": "boss", "POSTGRES_PASSWORD_FILE": "/run/secrets/boss"},
        "secrets": ["boss"],
    },
    "web-front": {
        "image": "x",
        "command": ["python", "-m", "web"],
        "environment": {"REVEILLE_LISTEN": "0.0.0.0:50", "REVEILLE_HTTP_LISTEN": "0.0.0.0:80"},
        "ports": ["127.0.0.1:8080:80"],
        "secrets": ["key", "boss"],
        "volumes": ["spool:/var/spool", "./here:/here"],
    },
    "back": {"image": "x", "command": ["back"], "ports": ["127.0.0.1:9000:90"]},
}
PORTS = PortMap(
    assigned={
        ("web-front", 1, 50): 1050,
        ("web-front", 1, 80): 1080,
        ("web-front", 2, 50): 2050,
        ("web-front", 2, 80): 2080,
        ("back", 1, 90): 1090,
    },
    published={8080: 1080, 9000: 1090},
)


@pytest.fixture
def compose(tmp_path: Path) -> Compose:
    path = tmp_path / "docker-compose.yml"
    secrets = {name: {"file": f"./keys/{name}.pem"} for name in ("boss", "key")}
    path.write_text(yaml.safe_dump({"services": SERVICES, "secrets": secrets}))
    return read_compose(path, {})


@pytest.fixture
def database(tmp_path: Path) -> DatabaseAddress:
    return DatabaseAddress.parse(
        "postgresql://ro%40ot:pass@db.example:6000/other?sslmode=require", tmp_path / "password"
    )[0]


@pytest.fixture
def localizer(compose: Compose, database: DatabaseAddress, tmp_path: Path) -> Localizer:
    return Localizer(compose, PORTS, DataDir.at(tmp_path / "data"), database)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("back:90", "127.0.0.1:1090"),
        ("http://back:90/path?x=1", "http://127.0.0.1:1090/path?x=1"),
        ('{"a": "back:90", "b": "web-front:50"}', '{"a": "127.0.0.1:1090", "b": "127.0.0.1:1050"}'),
        ("0.0.0.0:50", "127.0.0.1:1050"),
        ("127.0.0.1:80", "127.0.0.1:1080"),
        ("http://localhost:8080", "http://localhost:1080"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:1090"),
        ("127.0.0.1:4444", "127.0.0.1:4444"),
        ("https://hooks.example.com:8443/x", "https://hooks.example.com:8443/x"),
        ("feedback:90", "feedback:90"),
        ("my.back:90", "my.back:90"),
        ("12:30:45", "12:30:45"),
        ("info", "info"),
        ("postgresql://boss@postgres:5432/reveille", "postgresql://ro%40ot@db.example:6000/other?sslmode=require"),
        ("postgresql://app@postgres/reveille", "postgresql://app@db.example:6000/other?sslmode=require"),
        ("postgresql://app@elsewhere:5432/x", "postgresql://app@elsewhere:5432/x"),
        ("postgres:5432", "db.example:6000"),
    ],
)  # fmt: skip
def test_addresses(compose: Compose, localizer: Localizer, text: str, expected: str) -> None:
    assert localizer.value(text, compose.services["web-front"], 1) == expected


def test_paths(compose: Compose, localizer: Localizer, tmp_path: Path) -> None:
    def value(text: str) -> str:
        return localizer.value(text, compose.services["web-front"], 1)

    assert value("/run/secrets/key") == str(tmp_path / "keys" / "key.pem")
    assert value("/run/secrets/boss") == str(tmp_path / "password")
    assert value("/run/secrets") == str(tmp_path / "keys")
    assert value("/run/secrets/keyring") != str(tmp_path / "keys" / "key.pem") + "ring"
    assert value("/var/spool") == str(tmp_path / "data" / "volumes" / "spool")
    assert value("/var/spool/a b") == str(tmp_path / "data" / "volumes" / "spool") + "/a b"
    assert value("/here/x") == str(tmp_path / "here" / "x")
    assert value("/var/spooler") == "/var/spooler"


def test_a_second_replica_listens_on_its_own_ports(compose: Compose, localizer: Localizer) -> None:
    front = compose.services["web-front"]

    assert localizer.value("0.0.0.0:80", front, 2) == "127.0.0.1:2080"
    assert localizer.value("web-front:50", compose.services["back"], 1) == "127.0.0.1:1050"


def test_a_port_where_nobody_listens_is_refused(compose: Compose, localizer: Localizer) -> None:
    with pytest.raises(ComposeInvalid, match="back:91, where back does not listen"):
        localizer.value("back:91", compose.services["web-front"], 1)


@pytest.mark.parametrize(
    "url", ["mysql://a@b", "postgresql://b/c", "postgresql://", "postgresql://a@b:x/c"]
)
def test_what_is_no_database_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(StackError):
        DatabaseAddress.parse(url, tmp_path / "password")


def test_every_port_is_assigned_and_held(compose: Compose) -> None:
    assert listened_ports(compose.services["web-front"]) == [50, 80]
    holder = PortHolder()
    try:
        ports = assign_ports(compose, {"web-front": 2}, holder, free=True)
        assert len(set(ports.assigned.values())) == 5
        assert ports.published[8080] == ports.of("web-front", 1, 80)
        other = PortHolder()
        taken = set(ports.assigned.values())
        drawn = {other.hold() for _ in range(200)}
        other.close()
        assert not taken & drawn
    finally:
        holder.close()


def test_a_free_port_is_the_remembered_one_while_nobody_has_it(compose: Compose) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        taken = other.getsockname()[1]
        holder = PortHolder()
        first = assign_ports(compose, {}, holder, free=True)
        holder.close()
        known = {**first.assigned, ("back", 1, 90): taken}
        try:
            again = assign_ports(compose, {}, holder, free=True, remembered=known)
        finally:
            holder.close()

    assert again.of("web-front", 1, 50) == first.of("web-front", 1, 50)
    assert again.of("web-front", 1, 80) == first.of("web-front", 1, 80)
    assert again.of("back", 1, 90) not in {None, taken}


def test_a_port_is_held_once() -> None:
    holder = PortHolder()
    try:
        port = holder.hold()
        with pytest.raises(OSError, match="held already"):
            holder.hold(port)
    finally:
        holder.close()


def test_a_launch_is_complete(compose: Compose, localizer: Localizer, tmp_path: Path) -> None:
    data_dir = DataDir.at(tmp_path / "data")
    launches = make_launches(
        compose,
        PORTS,
        data_dir,
        localizer,
        scale={"web-front": 2},
        overrides={
            "*": {"A": "all"},
            "web-front": {"A": "service"},
            "web-front-2": {"A": "second"},
        },
    )

    by_name = {launch.name: launch for launch in launches}
    assert {name: launch.environment["A"] for name, launch in by_name.items()} == {
        "back": "all",
        "web-front": "service",
        "web-front-2": "second",
    }
    assert by_name["web-front-2"].addresses == {"grpc": "127.0.0.1:2050", "http": "127.0.0.1:2080"}
    assert by_name["web-front"].health_address == "127.0.0.1:1050"
    assert by_name["back"].addresses == {"port": "127.0.0.1:1090"}
    assert by_name["back"].health_address is None
    assert by_name["back"].argv == ("back",)
    assert by_name["web-front"].argv[1:] == ("-m", "web")
    assert by_name["web-front"].environment["REVEILLE_OTLP_DIR"] == str(data_dir.otlp)


def test_services_inherit_little() -> None:
    given = {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x",
        "REVEILLE_LISTEN": "1.2.3.4:5",
        "AWS_SECRET": "s",
        "MYPATH": "/x",
    }

    kept = {"PATH", "HOME", "LC_ALL", "OTEL_EXPORTER_OTLP_ENDPOINT"}
    assert set(inherited_environment(given)) == kept
