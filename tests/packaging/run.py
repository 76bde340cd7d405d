"""`make package`: build the packages into dist/, check them, and run a node from a clean environment."""

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


def make_packages(directory: Path) -> None:
    print("== building")
    packages = built(directory)
    print("== twine check")
    print(check(packages), end="")
    print("== node in a clean environment (PyPI)")
    environment = fresh(directory / "fresh")
    pip(environment, "install", "--quiet", str(packages[0]))
    print(f"produced and consumed: {greeted(environment, directory)}", end="")
    (ROOT / "dist").mkdir(exist_ok=True)
    for package in packages:
        print(f"dist/{Path(shutil.copy(package, ROOT / 'dist')).name}")


if __name__ == "__main__":
    sys.exit(main())
