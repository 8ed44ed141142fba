"""What a compose file says, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reveille_cli.stack.compose import (
    Compose,
    Condition,
    PublishedPort,
    find_compose_file,
    read_compose,
)
from reveille_cli.stack.errors import ComposeInvalid

ROOT = Path(__file__).resolve().parents[3]


def read(folder: Path, services: dict[str, Any], **more: Any) -> Compose:
    path = folder / "docker-compose.yml"
    path.write_text(yaml.safe_dump({"services": services, **more}))
    return read_compose(path, {"SECRETS_DIR": str(folder / "secrets")})


def test_one_service_in_all_its_parts(tmp_path: Path) -> None:
    (tmp_path / "more.env").write_text("FROM_FILE=1\nBOTH=file\n")
    service = read(
        tmp_path,
        {
            "one": {
                "image": "x:1",
                "command": "python -m one 'two words'",
                "env_file": [{"path": "more.env"}, {"path": "absent.env", "required": False}],
                "environment": {"BOTH": "own", "TRUE": True, "NUMBER": 5, "NONE": None},
                "ports": ["127.0.0.1:${PORT:-80}:8080", {"published": 81, "target": 8081}],
                "secrets": ["key", {"source": "key", "target": "other"}],
                "volumes": ["data:/var/data", {"source": "./here", "target": "/here"}],
                "stop_grace_period": "1m30s",
                "depends_on": ["two"],
            },
            "two": {"image": "x:1"},
            "skipped": {"image": "x:1", "profiles": ["extra"]},
        },
        secrets={"key": {"file": "${SECRETS_DIR}/key.pem"}},
    ).services["one"]

    assert service.command == ("python", "-m", "one", "two words")
    assert service.environment == {"FROM_FILE": "1", "BOTH": "own", "TRUE": "true", "NUMBER": "5"}
    assert service.ports == (PublishedPort(80, 8080, "PORT"), PublishedPort(81, 8081))
    key = tmp_path / "secrets" / "key.pem"
    assert service.secrets == {"/run/secrets/key": key, "/run/secrets/other": key}
    assert service.volumes == {"/var/data": "data", "/here": "./here"}
    assert service.stop_grace == 90
    assert service.depends_on == {"two": Condition.STARTED}


def test_variables_beside_the_file_are_known(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("WHERE=beside\nSECRETS_DIR=beside\n")

    compose = read(
        tmp_path, {"one": {"image": "x", "environment": ["A=$WHERE", "B=${SECRETS_DIR}"]}}
    )

    assert compose.services["one"].environment == {"A": "beside", "B": str(tmp_path / "secrets")}


def test_the_order_follows_the_dependencies(tmp_path: Path) -> None:
    compose = read(
        tmp_path,
        {
            "a": {"image": "x", "depends_on": ["b", "c"]},
            "b": {"image": "x", "depends_on": {"d": {"condition": "service_healthy"}}},
            "c": {"image": "x", "depends_on": ["job"]},
            "d": {"image": "registry/postgres:18"},
            "job": {"image": "x"},
            "e": {
                "image": "x",
                "depends_on": {"job": {"condition": "service_completed_successfully"}},
            },
        },
    )

    order = [service.name for service in compose.runnable()]
    assert sorted(order) == ["a", "b", "c", "e", "job"]
    assert order.index("a") > max(order.index("b"), order.index("c"))
    assert compose.database is compose.services["d"]
    assert [name for name in compose.services if compose.is_one_shot(name)] == ["job"]
    levels = compose.stop_levels()
    assert levels[0] == ["a"]
    assert sorted(levels[1]) == ["b", "c", "e"]
    assert sorted(levels[2]) == ["d", "job"]


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ({"depends_on": ["nobody"]}, "which is not a service"),
        ({"depends_on": ["one"]}, "wait for each other"),
        ({"depends_on": {"one": {"condition": "service_happy"}}}, "in an unknown way"),
        ({"ports": ["8080"]}, "names no fixed port"),
        ({"ports": [{"target": 80}]}, "names no fixed port"),
        ({"ports": ["127.0.0.1:99999:80"]}, "names no fixed port"),
        ({"ports": ["127.0.0.1:80:0"]}, "names no fixed port"),
        ({"ports": ["127.0.0.1:${X:-70000}:80"]}, "X=70000 is no port for one"),
        ({"ports": [{"published": "${X:-x}", "target": 80}]}, "X=x is no port for one"),
        ({"ports": ["81:80", "81:90"]}, "one and one both want port 81"),
        ({"secrets": ["nothing"]}, "not declared"),
        ({"volumes": ["/only/inside"]}, "names no volume"),
        ({"stop_grace_period": "soon"}, "duration"),
        ({"env_file": ["absent.env"]}, "needs the file"),
        ({"image": "${IMAGE:?say which}"}, "say which"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, service: dict[str, Any], message: str) -> None:
    with pytest.raises(ComposeInvalid, match=message):
        read(tmp_path, {"one": {"image": "x", **service}})


@pytest.mark.parametrize("text", ["services: [", "just text", "services: {}x", "[]"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "docker-compose.yml"
    path.write_text(text)

    with pytest.raises(ComposeInvalid):
        read_compose(path, {})
    with pytest.raises(ComposeInvalid, match="cannot read"):
        read_compose(tmp_path / "absent.yml", {})


def test_our_file_is_found_from_anywhere(tmp_path: Path) -> None:
    assert find_compose_file(ROOT / "libs" / "cli") == ROOT / "docker-compose.yml"
    # A stranger's file above the current folder is not taken for ours.
    (tmp_path / "docker-compose.yml").write_text("services: {web: {image: x}}")
    assert find_compose_file(tmp_path) == ROOT / "docker-compose.yml"
