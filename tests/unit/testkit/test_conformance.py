"""The conformance check passes on a sound map, and names every way in which one can be unsound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reveille_testkit.conformance import MalformedMap, load, main, parse_numbers

HEAD = """
[families]
T = "1-3, 7"
hb = "1-2"
[finished]
T = "1-2"
"""
SOUND = """
[T-1]
text = "one claimer wins"
tests = ["tests/unit/test_claim.py::test_one_wins", "tests/unit/test_claim.py::TestLease::test_a"]
[T-2]
text = "documents are versioned"
na = "there are no documents"
"""
TEST_FILE = '''
"""Stands for a test file."""
import a_module_that_does_not_exist

async def test_one_wins(): ...

def helper(): ...

class TestLease:
    def test_a(self): ...

class Helper:
    def test_b(self): ...
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    (folder / "test_claim.py").write_text(TEST_FILE)
    (folder / "claim_helpers.py").write_text("def test_hidden(): ...\n")
    (tmp_path / "test_outside.py").write_text("def test_outside(): ...\n")
    return tmp_path


def problems(root: Path, rules: str, head: str = HEAD) -> list[str]:
    path = root / "tests" / "conformance.toml"
    path.write_text(head + rules)
    return load(path).problems()


def test_a_sound_map_has_no_problems_and_is_counted(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problems(root, SOUND) == []

    assert main([str(root / "tests" / "conformance.toml")]) == 0
    assert capsys.readouterr().out == ("conformance: 1 rules tested, 1 not applicable, 4 to come\n")


def test_an_unmapped_rule_is_a_problem_only_inside_a_finished_range(root: Path) -> None:
    without_two = SOUND[: SOUND.index("[T-2]")]

    assert problems(root, without_two) == ["T-2: finished, but neither tests nor a reason is given"]


@pytest.mark.parametrize(
    "test",
    [
        "tests/unit/test_claim.py::test_two_win",
        "tests/unit/test_claim.py::helper",
        "tests/unit/test_claim.py::test_a",
        "tests/unit/test_claim.py::TestLease::test_b",
        "tests/unit/test_claim.py::Helper::test_b",
        "tests/unit/test_missing.py::test_one_wins",
        "tests/unit/claim_helpers.py::test_hidden",
        "test_outside.py::test_outside",
        "tests/../test_outside.py::test_outside",
    ],
)
def test_a_test_that_pytest_would_not_run_does_not_count(root: Path, test: str) -> None:
    rule = f'[hb-1]\ntext = "a rule"\ntests = ["{test}"]\n'

    assert problems(root, SOUND + rule) == [f"hb-1: {test} does not exist"]


def test_a_whole_file_is_not_a_test(root: Path) -> None:
    rule = '[hb-1]\ntext = "a rule"\ntests = ["tests/unit/test_claim.py"]\n'

    assert problems(root, SOUND + rule) == [
        "hb-1: tests/unit/test_claim.py names no test: write file.py::test_name"
    ]


@pytest.mark.parametrize("rule_id", ["T-4", "hb-3", "W-1", "T1", "T-01", "claims"])
def test_an_id_outside_every_family_is_a_problem(root: Path, rule_id: str) -> None:
    rule = f'[{rule_id}]\ntext = "a rule"\nna = "because"\n'

    assert problems(root, SOUND + rule) == [f"[{rule_id}]: no such rule in [families]"]


def test_a_finished_range_outside_its_family_is_a_problem(root: Path) -> None:
    head = HEAD.replace('T = "1-2"', 'T = "1-2, 6-7"\nX = "1"')
    seven = '[T-7]\ntext = "a rule"\nna = "because"\n'

    assert problems(root, SOUND + seven, head) == [
        "[finished] T-6: no such rule in [families]",
        "[finished] X-1: no such rule in [families]",
    ]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('text = "a"', "give either tests or na"),
        (
            'text = "a"\nna = "b"\ntests = ["tests/unit/test_claim.py::test_one_wins"]',
            "give either tests or na",
        ),
        ('text = " "\nna = "b"', "text is empty: say the rule in one line"),
        ('na = "b"', "text is empty: say the rule in one line"),
        ('text = "a"\nna = ""', "na is empty: say why it does not apply"),
        ('text = "a"\ntests = []', "tests is not a list with at least one test"),
        ('text = "a"\ntests = "x"', "tests is not a list with at least one test"),
        ('text = "a"\nna = "b"\nnote = "c"', "unknown field 'note'"),
    ],
)
def test_an_entry_that_proves_nothing_is_a_problem(root: Path, entry: str, problem: str) -> None:
    assert problems(root, f"{SOUND}[hb-1]\n{entry}\n") == [f"hb-1: {problem}"]


def test_a_rule_that_is_no_table_is_a_problem(root: Path) -> None:
    assert problems(root, SOUND, '"hb-1" = 1\n' + HEAD) == ["hb-1: not a table"]


@pytest.mark.parametrize(
    "head",
    [
        "[families]\nT = '1'\n",
        "[finished]\nT = '1'\n",
        "[families]\nT = [1]\n[finished]\n",
        "[families]\nT = '3-1'\n[finished]\n",
        "[families]\nT = '1 to 3'\n[finished]\n",
        "[families\n",
    ],
)
def test_a_map_that_cannot_be_read_is_refused(
    root: Path, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MalformedMap):
        problems(root, "", head)

    assert main([str(root / "tests" / "conformance.toml")]) == 1
    assert "conformance.toml: " in capsys.readouterr().err


def test_ranges_read_as_numbers() -> None:
    assert parse_numbers("1-3, 7,9-9") == {1, 2, 3, 7, 9}
    assert parse_numbers("") == frozenset()


def test_the_command_exits_with_one_and_names_the_gap(root: Path) -> None:
    problems(root, "")

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "reveille_testkit.conformance",
            str(root / "tests" / "conformance.toml"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert done.returncode == 1
    assert "T-1: finished, but neither tests nor a reason is given" in done.stderr
