"""`make package`: builds the packages into dist/, checks them, installs the wheel where nothing else is, and has a node
answer there."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.packaging.building import ROOT, Failed, built, check, fresh, greeted, pip


def main() -> int:
    try:
        with tempfile.TemporaryDirectory() as name:
            make_packages(Path(name))
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


def make_packages(folder: Path) -> None:
    print("== building")
    packages = built(folder)
    print("== twine check")
    print(check(packages), end="")
    print("== a node from a fresh environment (PyPI)")
    environment = fresh(folder / "fresh")
    pip(environment, "install", "--quiet", str(packages[0]))
    print(f"it wrote and read: {greeted(environment, folder)}", end="")
    (ROOT / "dist").mkdir(exist_ok=True)
    for package in packages:
        print(f"dist/{Path(shutil.copy(package, ROOT / 'dist')).name}")


if __name__ == "__main__":
    sys.exit(main())
