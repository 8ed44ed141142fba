"""The README's first trigger, typed as it is printed."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from .harness import World

ROOT = Path(__file__).resolve().parents[2]
_SECTION = re.compile(r"^## Your first trigger\n(.*?)^## ", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# The test has a stack of its own, and spans reach its files later than a script is patient.
_LEFT_OUT = re.compile(r"^reveille (?:up|down|trace)\b.*\n", re.MULTILINE)


def script() -> str:
    section = _SECTION.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert section is not None
    return _LEFT_OUT.sub("", "".join(_BLOCK.findall(section[1])))


@pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("bash", "curl", "openssl", "python3")),
    reason="the README's commands use bash, curl, openssl and python3",
)
async def test_a_newcomer_can_paste_the_readme(world: World, tmp_path: Path) -> None:
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        "PATH": programs,
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "LANG": "C.UTF-8",
        "COLUMNS": "200",
        "REVEILLE_DATA_DIR": str(world.stack.data_dir.root),
    }

    process = await asyncio.create_subprocess_exec(
        "bash",
        *("-eu", "-o", "pipefail", "-c", script()),
        cwd=ROOT,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaints = (part.decode() for part in await process.communicate())

    assert process.returncode == 0, output + complaints
    assert re.search(r"^state +completed$", output, re.MULTILINE), output
    assert "Triaged lighthouse-crew/beacon#42" in output
    assert re.search(r"^schedule\.time_zone +Europe/Berlin$", output, re.MULTILINE), output
    assert re.search(r"^user_id +maya$", output, re.MULTILINE), output
