"""`reveille tokens create`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from reveille_cli.main import app
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.keys import TRUSTED_KEYS, key_file, make_secrets
from reveille_runtime.access import Actor, CallerKind, Role
from reveille_runtime.errors import Unauthenticated
from reveille_runtime.tokens import (
    TokenVerifier,
    generate_key,
    load_trusted_keys,
    save_trusted_keys,
)

WORKSPACE = "0197f3a0-0000-7000-8000-000000000001"


@pytest.fixture
def place(tmp_path: Path) -> DataDir:
    made = DataDir.at(tmp_path / "data")
    made.prepare()
    make_secrets(made)
    return made


def create(place: DataDir, *words: str) -> str:
    line = ["tokens", "create", "--data-dir", str(place.root), *words]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def verify(place: DataDir, token: str, *, now: float | None = None) -> Actor:
    verifier = TokenVerifier(load_trusted_keys(place.keys / TRUSTED_KEYS))
    return verifier.verify(token.strip(), now=now)


def test_a_user_with_roles(place: DataDir) -> None:
    actor = verify(place, create(place, "--user", "ann", "--workspace", f"{WORKSPACE}=admin"))

    assert (actor.kind, actor.subject) == (CallerKind.USER, "ann")
    assert actor.roles == {UUID(WORKSPACE): Role.ADMIN}
    assert not actor.operator


def test_an_operator(place: DataDir) -> None:
    actor = verify(place, create(place, "--operator"))

    assert (actor.subject, actor.operator) == ("local", True)


def test_a_service(place: DataDir) -> None:
    document = json.loads(create(place, "--service", "billing", "-o", "json"))

    actor = verify(place, document["token"])
    assert (actor.kind, actor.subject) == (CallerKind.SERVICE, "billing")
    assert (document["kind"], document["subject"]) == ("service", "billing")


def test_it_ends_with_its_time(place: DataDir) -> None:
    token = create(place, "--ttl", "15m")

    assert verify(place, token, now=time.time() + 14 * 60)
    with pytest.raises(Unauthenticated):
        verify(place, token, now=time.time() + 16 * 60)


def test_another_key(place: DataDir, tmp_path: Path) -> None:
    key = key_file(place, "operator")

    result = CliRunner().invoke(
        app, ["tokens", "create", "--data-dir", str(tmp_path / "none"), "--key-file", str(key)]
    )

    assert verify(place, result.stdout)


@pytest.mark.parametrize(
    ("words", "exit_code", "reason"),
    [
        (["--workspace", "acme=admin"], 2, "invalid_field"),
        (["--workspace", WORKSPACE], 2, "invalid_field"),
        (["--workspace", f"{WORKSPACE}=king"], 2, "invalid_field"),
        (["--ttl", "0"], 2, "invalid_field"),
        (["--ttl", "a day"], 2, "invalid_field"),
        (["--service", "x", "--operator"], 2, "invalid_field"),
        (["--service", "x", "--user", "ann"], 2, "invalid_field"),
        (["--service", "x", "--workspace", f"{WORKSPACE}=admin"], 2, "invalid_field"),
        (["--service", "heartbeat"], 2, "invalid_field"),
        (["--service", "operator"], 2, "invalid_field"),
        (["--service", ""], 2, "invalid_field"),
        (["--key-file", "/no/such/key"], 2, "invalid_field"),
        (["--data-dir", "/no/such/place"], 4, "key_missing"),
    ],
)
def test_what_is_refused(place: DataDir, words: list[str], exit_code: int, reason: str) -> None:
    line = ["tokens", "create", "--data-dir", str(place.root), *words, "-o", "json"]

    result = CliRunner().invoke(app, line)

    assert result.exit_code == exit_code
    assert json.loads(result.stdout)["error"]["reason"] == reason


def test_a_service_that_this_place_trusts_has_its_own_key(place: DataDir) -> None:
    keys = load_trusted_keys(place.keys / TRUSTED_KEYS)
    billing = generate_key(place.root / "billing.pem", "billing")
    save_trusted_keys(place.keys / TRUSTED_KEYS, [*keys, billing])
    line = ["tokens", "create", "--data-dir", str(place.root), "--service", "billing"]

    result = CliRunner().invoke(app, line)

    assert result.exit_code == 2
    assert "billing has a key of its own" in result.stderr


def test_the_help_tells_how_long_a_token_really_lives() -> None:
    result = CliRunner().invoke(app, ["tokens", "create", "--help"], env={"COLUMNS": "200"})

    assert "up to 30 s longer" in result.stdout
