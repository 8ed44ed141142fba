"""Files of a data directory, the secrets in it, and who a pid is."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from reveille_cli.stack.datadir import DataDir, default_data_dir, read_json, write_json
from reveille_cli.stack.errors import AlreadyRunning, DataDirUnusable
from reveille_cli.stack.identity import ProcessIdentity
from reveille_cli.stack.keys import (
    ISSUERS,
    ROLE_PASSWORDS,
    SEALING_KEYS,
    local_operator_token,
    make_secrets,
)
from reveille_cli.stack.lock import StackLock, is_locked
from reveille_cli.stack.process import TRANSITIONS, ProcessState, describe_exit
from reveille_runtime.access import CallerKind
from reveille_runtime.crypto import Sealer
from reveille_runtime.tokens import TokenVerifier, load_trusted_keys


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    made = DataDir.at(tmp_path / "data")
    made.prepare()
    return made


def test_folders_are_private_also_when_they_were_not(data_dir: DataDir) -> None:
    data_dir.root.chmod(0o755)
    data_dir.keys.chmod(0o777)

    data_dir.prepare()

    for folder in (data_dir.root, data_dir.keys, data_dir.logs, data_dir.otlp, data_dir.volumes):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_secrets_are_made_once(data_dir: DataDir) -> None:
    make_secrets(data_dir)
    before = {path.name: path.read_bytes() for path in data_dir.keys.iterdir()}
    (data_dir.keys / "operator.pem").chmod(0o644)
    (data_dir.keys / SEALING_KEYS[0]).write_bytes(b"")

    make_secrets(data_dir)

    after = {path.name: path.read_bytes() for path in data_dir.keys.iterdir()}
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {SEALING_KEYS[0]}
    assert {stat.S_IMODE(path.stat().st_mode) for path in data_dir.keys.iterdir()} == {0o600}
    for name in SEALING_KEYS:
        sealer = Sealer(data_dir.keys / name)
        assert sealer.open(sealer.seal(b"secret", b"place"), b"place") == b"secret"
    assert len({after[name] for name in ROLE_PASSWORDS}) == len(ROLE_PASSWORDS)
    trusted = load_trusted_keys(data_dir.keys / "trusted_keys.json")
    assert tuple(key.issuer for key in trusted) == ISSUERS


def test_the_local_operator_is_whom_it_says(data_dir: DataDir) -> None:
    make_secrets(data_dir)
    verifier = TokenVerifier(load_trusted_keys(data_dir.keys / "trusted_keys.json"))

    actor = verifier.verify(local_operator_token(data_dir.root))

    assert (actor.kind, actor.subject, actor.operator) == (CallerKind.USER, "local", True)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirUnusable, match="file"):
            DataDir.at(path).prepare()


def test_json_is_whole_or_absent(data_dir: DataDir) -> None:
    path = data_dir.root / "x.json"

    assert read_json(path) is None
    write_json(path, {"a": 1})
    assert read_json(path) == {"a": 1}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text('{"a":')
    assert read_json(path) is None
    assert json.dumps(sorted(item.name for item in data_dir.root.glob(".x*"))) == "[]"


def test_the_environment_names_the_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REVEILLE_DATA_DIR", raising=False)
    assert default_data_dir() == Path(".reveille")
    monkeypatch.setenv("REVEILLE_DATA_DIR", "/elsewhere")
    assert default_data_dir() == Path("/elsewhere")


def test_one_lock_at_a_time(data_dir: DataDir) -> None:
    assert not is_locked(data_dir)
    with StackLock(data_dir):
        assert is_locked(data_dir)
        with pytest.raises(AlreadyRunning), StackLock(data_dir):
            pass
        assert is_locked(data_dir)
    assert not is_locked(data_dir)
    with StackLock(data_dir):
        pass


def test_a_pid_alone_is_nobody() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        identity = ProcessIdentity.of(child.pid)
        assert identity is not None
        assert identity.is_alive()
        earlier = replace(identity, started=identity.started - 3600)

        assert not earlier.is_alive()
        assert not earlier.send(signal.SIGKILL)
        assert child.poll() is None
        assert identity.send(signal.SIGTERM)
        child.wait(10)

    assert not identity.is_alive()
    assert not identity.send(signal.SIGTERM)
    assert ProcessIdentity.read(identity.as_json()) == identity
    assert abs(ProcessIdentity.of(os.getpid()).started - time.time()) < 86_400  # type: ignore[union-attr]  # we are alive


def test_exits_in_words() -> None:
    assert describe_exit(None) == "has not exited"
    assert describe_exit(0) == "exited with code 0"
    assert describe_exit(137) == "exited with code 137"
    assert describe_exit(-9) == "was killed by SIGKILL"
    assert describe_exit(-99) == "was killed by signal 99"


def test_every_state_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS) == set(ProcessState)
    reached = set().union(*TRANSITIONS.values())
    assert reached == set(ProcessState) - {ProcessState.WAITING}
    assert all(TRANSITIONS.values())
