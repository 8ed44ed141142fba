"""docker-compose.yml and Dockerfile: valid, safe, and in step with the services they run."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings

from reveille_cli.stack.compose import Compose, read_compose
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.keys import ISSUERS, make_secrets
from reveille_runtime.app import CLOSING, SETTLING
from reveille_runtime.migrate import MigrateSettings
from reveille_runtime.roles import MIGRATOR
from reveille_runtime.schemas import discover_schemas

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
BIN = Path(sys.executable).parent
PACKAGES = {
    "scheduler": "reveille_scheduler",
    "autopilot": "reveille_autopilot",
    "webhook-gateway": "reveille_webhook",
    "heartbeat": "reveille_heartbeat",
}
OURS = [*PACKAGES, "migrate"]


@cache
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return loaded


@cache
def compose() -> Compose:
    return read_compose(COMPOSE, {})


def dockerfile() -> list[str]:
    return (ROOT / "Dockerfile").read_text().splitlines()


def settings_of(service: str) -> type[BaseSettings]:
    if service == "migrate":
        return MigrateSettings
    module = importlib.import_module(f"{PACKAGES[service]}.config")
    [found] = [
        item
        for item in vars(module).values()
        if isinstance(item, type)
        and issubclass(item, BaseSettings)
        and item.__module__ == module.__name__
    ]
    return found


def test_the_compose_file_follows_its_schema() -> None:
    subprocess.run(
        [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE],
        check=True,
        capture_output=True,
    )


def test_the_dockerfile_is_clean() -> None:
    checked = subprocess.run(
        [BIN / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )

    assert checked.stdout == ""
    assert checked.returncode == 0


@pytest.mark.parametrize("service", OURS)
def test_every_variable_is_a_setting(service: str) -> None:
    settings = settings_of(service)
    prefix = settings.model_config.get("env_prefix", "")
    known = {f"{prefix}{name}".upper() for name in settings.model_fields}

    assert set(compose().services[service].environment) - known == set()


@pytest.mark.parametrize("service", OURS)
def test_every_setting_that_must_be_given_is_given(service: str) -> None:
    settings = settings_of(service)
    prefix = settings.model_config.get("env_prefix", "")
    needed = {
        f"{prefix}{name}".upper()
        for name, field in settings.model_fields.items()
        if field.is_required()
    }

    assert needed - set(compose().services[service].environment) == set()


@pytest.mark.parametrize("service", OURS)
def test_the_settings_are_accepted(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = DataDir.at(tmp_path)
    place.prepare()
    make_secrets(place)
    secrets = read_compose(COMPOSE, {"SECRETS_DIR": str(place.keys)}).services[service].secrets
    for key, value in compose().services[service].environment.items():
        chosen = str(secrets.get(value, value))
        monkeypatch.setenv(key, str(place.keys) if value == "/run/secrets" else chosen)

    settings_of(service)()


@pytest.mark.parametrize("service", OURS)
def test_a_container_can_do_little(service: str) -> None:
    body = document()["services"][service]

    assert body["init"] is True
    assert body["read_only"] is True
    assert body["cap_drop"] == ["ALL"]
    assert body["security_opt"] == ["no-new-privileges:true"]
    assert body["user"]
    assert body["mem_limit"]
    assert body["pids_limit"]


def test_no_log_grows_for_ever() -> None:
    """Docker's own default keeps everything; this driver rotates by itself."""
    for name, body in document()["services"].items():
        assert body["logging"] == {"driver": "local"}, name


def test_names_versions_and_ports_are_fixed_and_local() -> None:
    for name, body in document()["services"].items():
        assert "container_name" not in body
        assert not body["image"].rstrip("}").endswith("latest")
        assert ":" in body["image"]
        for port in body.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
    bases = [line for line in dockerfile() if line.startswith("FROM ")]
    assert all(re.search(r":\d+\.\d+\.\d+-", line) for line in bases)
    assert any(re.fullmatch(r"USER \d+:\d+", line) for line in dockerfile())


def test_published_ports_are_those_of_the_design_and_can_be_changed() -> None:
    published = {
        name: [port.host for port in service.ports]
        for name, service in compose().services.items()
        if service.ports
    }

    assert published == {
        "scheduler": [50051],
        "autopilot": [50052],
        "webhook-gateway": [50053, 8080],
        "heartbeat": [50054],
    }
    changed = {
        port.variable: str(port.host + 1000)
        for service in compose().services.values()
        for port in service.ports
    }
    moved = read_compose(COMPOSE, changed)
    assert [port.host for port in moved.services["webhook-gateway"].ports] == [51053, 9080]
    for name, hosts in published.items():
        assert [port.host for port in moved.services[name].ports] == [host + 1000 for host in hosts]
    assert moved.services["autopilot"].environment["REVEILLE_PUBLIC_URL"] == "http://127.0.0.1:9080"


def test_every_secret_is_one_that_the_keys_command_makes(tmp_path: Path) -> None:
    place = DataDir.at(tmp_path)
    place.prepare()
    make_secrets(place)

    files = {
        file.name for service in compose().services.values() for file in service.secrets.values()
    }

    made = {path.name for path in place.keys.iterdir()}
    # The operator's key signs people's tokens; no service has a use for it.
    assert made - files == {"operator.pem"}
    assert files <= made


@pytest.mark.parametrize("service", PACKAGES)
def test_a_service_signs_in_its_own_name(service: str) -> None:
    name = settings_of(service).service_name  # type: ignore[attr-defined]  # all but migrate's

    key = compose().services[service].environment["REVEILLE_SERVICE_KEY_FILE"]
    assert compose().services[service].secrets[key].name == f"{name}.pem"
    assert name in ISSUERS


def test_every_role_has_its_password() -> None:
    passwords = {Path(path).name for path in compose().services["migrate"].secrets}

    assert {MIGRATOR, *(schema.app for schema in discover_schemas())} <= passwords


@pytest.mark.parametrize("service", PACKAGES)
def test_a_service_gets_its_own_secrets_only(service: str) -> None:
    schema = service.removesuffix("-gateway")
    mounted = {Path(path).name for path in compose().services[service].secrets}

    assert mounted - {f"{schema}_sealing_key"} == {
        "trusted_keys",
        f"{schema}_key",
        f"reveille_{schema}_app",
    }


@pytest.mark.parametrize("service", PACKAGES)
def test_a_service_is_not_killed_while_it_stops(service: str) -> None:
    # It stops claiming, then serving, then working; then it closes what it opened.
    defaults = {name: field.default for name, field in settings_of(service).model_fields.items()}
    longest = defaults["drain_pause"] + 3 * (defaults["drain_grace"] + SETTLING) + CLOSING

    assert compose().services[service].stop_grace > longest


@pytest.mark.parametrize("service", OURS)
def test_commands_are_modules_of_ours(service: str) -> None:
    module = PACKAGES.get(service, "reveille_runtime.migrate")

    assert compose().services[service].command == ("python", "-m", module)


def test_nothing_in_the_image_is_left_out_of_its_context() -> None:
    copied = [
        line.split()[1:-1]
        for line in dockerfile()
        if line.startswith("COPY ") and "--from" not in line
    ]
    allowed = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]

    assert [source for sources in copied for source in sources] == allowed
    assert all((ROOT / source).exists() for source in allowed)
