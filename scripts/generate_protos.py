"""Generate common/rpc/pb from protos/: run it after every change to a .proto file.

protoc writes `from vfl.v1 import x_pb2` after the proto package; our generated code lives in
common.rpc.pb, so the one thing done to it afterwards is to rewrite that import.
`--check` regenerates into a temporary folder and fails if the committed code differs.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = ROOT / "common" / "rpc" / "pb"
HEADER = '"""Generated from protos/ by scripts/generate_protos.py; do not edit."""\n'


def generate(target: Path) -> None:
    """Write the Python modules and type stubs of every proto file into `target`."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("vfl/v1/*.proto"))
    well_known = resources.files("grpc_tools") / "_proto"
    # protoc finds the mypy plug-ins of this environment on the PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as scratch:
        arguments = [f"-I{PROTOS}", f"-I{well_known}"]
        arguments += [f"--{kind}_out={scratch}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
        if protoc.main(["protoc", *arguments, *sources]) != 0:
            raise SystemExit("protoc failed")
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted(Path(scratch, "vfl", "v1").iterdir()):
            text = path.read_text(encoding="utf-8")
            if "_pb2_grpc" in path.name and "Stub" not in text:
                continue  # a file of messages only
            text = re.sub(r"^(from|import) vfl\.v1\b", r"\1 common.rpc.pb", text, flags=re.M)
            (target / path.name).write_text(text, encoding="utf-8")
        (target / "__init__.py").write_text(HEADER, encoding="utf-8")


def main() -> int:
    """Generate in place, or with --check compare with what is committed."""
    if "--check" not in sys.argv[1:]:
        shutil.rmtree(TARGET, ignore_errors=True)
        generate(TARGET)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = {path.name for path in Path(scratch).iterdir()}
        kept = {path.name for path in TARGET.iterdir() if path.is_file()}
        _, changed, missing = filecmp.cmpfiles(scratch, TARGET, fresh & kept, shallow=False)
    stale = sorted(set(changed) | set(missing) | (fresh ^ kept))
    if stale:
        print("common/rpc/pb is out of date, run python scripts/generate_protos.py:", *stale, file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
