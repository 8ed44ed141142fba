"""Reveille's pytest plugin: a clean environment, one server per session, real parts."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from reveille_cli.stack.pginstall import wheel_binaries
from reveille_testkit.cluster import ADMIN_URL_VARIABLE, SessionCluster
from reveille_testkit.database_fixtures import session_cluster
from reveille_testkit.introspection import ask_once

pytest_plugins = ("reveille_testkit.database_fixtures",)

# Creating a file costs a disk ten times what it costs memory, and a database is hundreds of files.
_MEMORY = Path("/dev/shm")  # noqa: S108 (what is made in it has names of its own)
_ENOUGH_MEMORY = 4 << 30
_PYTEST_ROOT = "PYTEST_DEBUG_TEMPROOT"
_FOLDER = "reveille_session_folder"
_OWNER = "reveille_session_owner"
_folder_key = pytest.StashKey[Path]()
_owner_key = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Forget the caller's configuration; find or make the session's folder."""
    for name in list(os.environ):
        if name.startswith("OTEL_") or (
            name.startswith("REVEILLE_") and not name.startswith("REVEILLE_TEST_")
        ):
            del os.environ[name]
    ask_once()
    handed_down: dict[str, Any] | None = getattr(config, "workerinput", None)
    if handed_down is None:
        root = memory_root()
        if root is not None:
            # Read by pytest when it makes the first `tmp_path`.
            os.environ.setdefault(_PYTEST_ROOT, str(root))
        folder, owner = Path(tempfile.mkdtemp(prefix="reveille-tests-", dir=root)), os.getpid()
    else:
        folder, owner = Path(handed_down[_FOLDER]), int(handed_down[_OWNER])
    config.stash[_folder_key] = folder
    config.stash[_owner_key] = owner
    external = os.environ.get(ADMIN_URL_VARIABLE, "")
    config.stash[session_cluster] = SessionCluster(folder, owner, external)


def memory_root() -> Path | None:
    """Name the file system in memory, where there is one with room for a whole session."""
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ENOUGH_MEMORY:
        return None
    return _MEMORY


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist which session it belongs to."""
    node.workerinput[_FOLDER] = str(node.config.stash[_folder_key])
    node.workerinput[_OWNER] = node.config.stash[_owner_key]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each stack of the end-to-end tests to one worker."""
    from reveille_testkit.scheduling import StackScheduling

    return StackScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the server with the session; workers leave that to the process that started them."""
    if hasattr(config, "workerinput") or _folder_key not in config.stash:
        return
    config.stash[session_cluster].close()
    shutil.rmtree(config.stash[_folder_key], ignore_errors=True)


def pytest_report_header() -> str:
    """Say against which PostgreSQL the tests run."""
    if os.environ.get(ADMIN_URL_VARIABLE):
        return f"postgres: the server of {ADMIN_URL_VARIABLE}"
    program = wheel_binaries() / "postgres"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return f"postgres: embedded, {said.stdout.strip()}"
