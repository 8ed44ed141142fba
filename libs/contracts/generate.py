"""Generate the Python contracts from `protos/`.

`python libs/contracts/generate.py` rewrites `libs/contracts/src/reveille`;
`--check` generates into a temporary folder and fails when the committed tree differs.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "protos"
TARGET = ROOT / "libs" / "contracts" / "src"
# grpc_tools ships google/protobuf/*.proto beside its own package.
WELL_KNOWN = Path(protoc.__file__).parent / "_proto"
# The plugins stand beside the interpreter, so no PATH has to name them.
SCRIPTS = Path(sysconfig.get_path("scripts"))


def generate(target: Path) -> None:
    """Write the whole generated tree below `target`.

    Raises:
        SystemExit: protoc refused a file; its own message is on stderr.
    """
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    status = protoc.main(
        [
            "protoc",
            f"-I{PROTOS}",
            f"-I{WELL_KNOWN}",
            f"--plugin=protoc-gen-mypy={SCRIPTS / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={SCRIPTS / 'protoc-gen-mypy_grpc'}",
            f"--python_out={target}",
            f"--grpc_python_out={target}",
            f"--mypy_out=quiet:{target}",
            f"--mypy_grpc_out=quiet:{target}",
            *sources,
        ]
    )
    if status != 0:
        raise SystemExit(status)
    package = target / "reveille"
    for folder in (package, *(path for path in package.rglob("*") if path.is_dir())):
        if folder.name != "__pycache__":
            (folder / "__init__.py").touch()
    (package / "py.typed").touch()


def differences(left: Path, right: Path) -> list[str]:
    """Name every generated file that differs, or stands on one side only."""
    names = {
        path.relative_to(side)
        for side in (left, right)
        for path in side.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return sorted(
        str(name)
        for name in names
        if not (left / name).is_file()
        or not (right / name).is_file()
        or not filecmp.cmp(left / name, right / name, shallow=False)
    )


def install(generated: Path, committed: Path) -> None:
    """Bring `committed` to what was generated, touching only the files that differ."""
    for name in differences(generated, committed):
        if (generated / name).is_file():
            (committed / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(generated / name, committed / name)
        else:
            (committed / name).unlink()


def main() -> int:
    """Generate, or compare with what is committed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    committed = TARGET / "reveille"
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        generated = Path(folder) / "reveille"
        if not check:
            install(generated, committed)
            return 0
        drift = differences(generated, committed)
    for name in drift:
        sys.stderr.write(f"generated contract differs from its proto: {name}\n")
    if drift:
        sys.stderr.write("run `make protos` and commit what it writes\n")
    return 1 if drift else 0


if __name__ == "__main__":
    raise SystemExit(main())
