"""Settings: every problem at once, secrets from files, one way to see what is in effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import Field, SecretStr, ValidationError

from reveille_runtime.config import DatabaseSettings, ServiceSettings, load_settings


class SampleSettings(ServiceSettings):
    """A service with a secret and a list."""

    service_name = "sample"

    handlers: dict[str, str] = Field(default_factory=dict)
    api_key: SecretStr = SecretStr("")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "keys").write_text("{}")
    (tmp_path / "password").write_text("s3cret\n")
    monkeypatch.setenv("REVEILLE_DATABASE_URL", "postgresql://app@127.0.0.1:5432/reveille")
    monkeypatch.setenv("REVEILLE_DATABASE_PASSWORD_FILE", str(tmp_path / "password"))
    monkeypatch.setenv("REVEILLE_TRUSTED_KEYS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("REVEILLE_SERVICE_KEY_FILE", str(tmp_path / "keys"))
    return tmp_path


@pytest.mark.usefixtures("environment")
def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVEILLE_LISTEN", "127.0.0.1:6000")
    monkeypatch.setenv("REVEILLE_HANDLERS", '{"autopilot": "127.0.0.1:50052"}')
    monkeypatch.setenv("REVEILLE_TEST_CLOCK_OFFSET", "3600")

    settings = load_settings(SampleSettings, [])

    assert settings.listen == "127.0.0.1:6000"
    assert settings.handlers == {"autopilot": "127.0.0.1:50052"}
    assert settings.database.application_name == "reveille-sample"
    assert settings.database.clock_offset == 3600
    assert settings.database.password() == "s3cret"


def test_a_rotated_password_is_seen_at_the_next_connect(environment: Path) -> None:
    settings = load_settings(SampleSettings, []).database
    (environment / "password").write_text("next")

    assert settings.password() == "next"


@pytest.mark.usefixtures("environment")
def test_settings_do_not_change() -> None:
    settings = load_settings(SampleSettings, [])

    with pytest.raises(ValidationError):
        settings.listen = "127.0.0.1:1"


def test_all_problems_come_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REVEILLE_LISTEN", "50051")
    monkeypatch.setenv("REVEILLE_DATABASE_URL", "postgresql://app:secret@127.0.0.1/reveille")
    monkeypatch.setenv("REVEILLE_DATABASE_POOL_MAX", "0")
    monkeypatch.setenv("REVEILLE_LOG_LEVEL", "loud")

    with pytest.raises(SystemExit) as ended:
        load_settings(SampleSettings, [])

    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.out == ""
    for expected in (
        "REVEILLE_LISTEN: must be host:port",
        "REVEILLE_DATABASE_URL: must not hold a password",
        "REVEILLE_DATABASE_POOL_MAX: ",
        "REVEILLE_LOG_LEVEL: ",
        "REVEILLE_TRUSTED_KEYS_FILE: Field required",
        "REVEILLE_SERVICE_KEY_FILE: Field required",
    ):
        assert expected in said.err
    assert "secret" not in said.err


@pytest.mark.parametrize(
    "url", ["postgresql://a:secret@b/c", "postgresql://a@b/c?sslmode=require&password=secret"]
)
def test_a_url_holds_no_password(url: str) -> None:
    with pytest.raises(ValidationError, match="must not hold a password"):
        DatabaseSettings(url=url)


@pytest.mark.parametrize(
    "url", ["mysql://a@b/c", "postgresql:///reveille", "postgresql://127.0.0.1/x", "nonsense"]
)
def test_a_url_names_role_server_and_database(url: str) -> None:
    with pytest.raises(ValidationError, match="must"):
        DatabaseSettings(url=url)


@pytest.mark.usefixtures("environment")
def test_the_configuration_is_shown_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REVEILLE_API_KEY", "hunter2")

    with pytest.raises(SystemExit) as ended:
        load_settings(SampleSettings, ["--print-config"])

    shown = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert shown["listen"] == "127.0.0.1:50051"
    assert shown["api_key"] == "**********"
    assert "s3cret" not in json.dumps(shown)
