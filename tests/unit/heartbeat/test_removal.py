"""Folders of agents are removed however they were left, and nothing else is."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reveille_heartbeat.adapters.removal import remove_tree

# A service is often no superuser, and for one of these nothing is locked.
NOBODY = 65_534
LOCKED = """
import os, sys
from pathlib import Path
from reveille_heartbeat.adapters.removal import remove_tree

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({nobody})
    os.setuid({nobody})
for mode in (0o555, 0o000, 0o300, 0o600):
    folder = Path("tree", f"m{{mode:o}}", "inner")
    Path(folder, "deep").mkdir(parents=True)
    Path(folder, "deep", "file").write_text("x")
    for each in (folder / "deep", folder, folder.parent):
        each.chmod(mode)
Path("tree").chmod(0o500)
assert not os.access("tree/m0/inner", os.R_OK)
refusal = remove_tree(Path("tree"))
assert refusal is None, refusal
assert not os.path.lexists("tree")
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "work").mkdir(parents=True)
    return tree


@contextlib.contextmanager
def dug(folder: Path, levels: int) -> Iterator[None]:
    """Have a chain of folders that no path reaches to its end."""
    try:
        _dig(folder, levels)
        yield
    finally:
        # Should the test fail: who tidies up after tests would fail on it, too.
        subprocess.run(["rm", "-rf", folder], check=True)


def _dig(folder: Path, levels: int) -> None:
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)


def opened() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def most_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Tell how many descriptors were open at most, beside those that were open before."""
    before = opened()
    most = [0]
    true_rmdir = os.rmdir

    def rmdir(*arguments: Any, **more: Any) -> None:
        most[0] = max(most[0], opened() - before)
        true_rmdir(*arguments, **more)

    monkeypatch.setattr(os, "rmdir", rmdir)
    yield most
    assert opened() == before


def test_a_chain_of_folders_is_removed_without_a_stack_and_with_few_descriptors(
    tree: Path, most_open: list[int]
) -> None:
    with dug(tree / "work", 3_000):
        assert remove_tree(tree) is None
        assert not tree.exists()
    assert 0 < most_open[0] < 10


def test_many_files_and_folders_are_removed(tree: Path) -> None:
    for at in range(30):
        for inside in range(30):
            folder = tree / f"a{at}" / f"b{inside}"
            folder.mkdir(parents=True)
            (folder / "file").write_text("x")
    os.mkfifo(tree / "work" / "pipe")
    assert remove_tree(tree) is None
    assert not tree.exists()


def test_locked_folders_are_removed_by_who_is_no_superuser(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    if os.geteuid() == 0:
        os.chown(place, NOBODY, NOBODY)
    code = LOCKED.format(nobody=NOBODY)
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert list(place.iterdir()) == []


def test_links_are_removed_and_never_followed(tree: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    (others / "folder").mkdir(parents=True)
    (others / "folder" / "file").write_text("mine")
    (others / "folder").chmod(0o500)
    for folder in (tree, tree / "work"):
        (folder / "to_folder").symlink_to(others)
        (folder / "to_file").symlink_to(others / "folder" / "file")
        (folder / "up").symlink_to("..")
        (folder / "nowhere").symlink_to("nowhere")
    assert remove_tree(tree) is None
    assert not tree.exists()
    # In the place of the whole.
    tree.symlink_to(others)
    assert remove_tree(tree) is None
    assert not tree.is_symlink()
    assert (others / "folder" / "file").read_text() == "mine"
    assert (others / "folder").stat().st_mode & 0o777 == 0o500


@pytest.mark.parametrize("where", ["", "work", "work/inner"])
def test_a_link_that_takes_a_folders_place_between_two_steps_leads_nowhere(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It was a folder when it was asked for, and is a link when it is opened or moved."""
    others = tmp_path / "others"
    others.mkdir()
    (others / "file").write_text("mine")
    (tree / "work" / "inner").mkdir()
    (tree / "work" / "inner" / "file").write_text("its")
    victim = tree / where
    name, moved = victim.name, tmp_path / "moved"
    true_rmdir = os.rmdir

    def rmdir(path: str, **more: Any) -> None:
        try:
            true_rmdir(path, **more)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY and path == name and not moved.exists():
                victim.rename(moved)
                victim.symlink_to(others)
            raise

    monkeypatch.setattr(os, "rmdir", rmdir)
    # The first look may be refused; the next finds a link.
    remove_tree(tree)
    assert moved.exists()
    assert (others / "file").read_text() == "mine"
    assert remove_tree(tree) is None
    assert not os.path.lexists(tree)
    assert (others / "file").read_text() == "mine"


def test_what_cannot_be_removed_is_told_and_the_rest_is_gone(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "stuck", "last"):
        (tree / "work" / name).mkdir()
        (tree / "work" / name / f"{name}.txt").write_text("x")
    true_unlink = os.unlink

    def unlink(name: str, **more: Any) -> None:
        if name == "stuck.txt":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        true_unlink(name, **more)

    monkeypatch.setattr(os, "unlink", unlink)
    refusal = remove_tree(tree)
    assert refusal is not None
    assert refusal.errno == errno.EPERM
    assert [path.name for path in tree.rglob("*") if path.is_file()] == ["stuck.txt"]
    monkeypatch.undo()
    assert remove_tree(tree) is None
    assert not tree.exists()


def test_what_is_not_there_needs_no_removal(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "nothing") is None
    assert remove_tree(tmp_path / "nothing" / "below") is None
