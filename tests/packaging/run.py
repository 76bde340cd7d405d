"""`make package`: build the packages into dist/, check them, and run a node from a clean environment."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.packaging.build_steps import (
    ROOT,
    BuildFailed,
    build_packages,
    check_packages,
    create_environment,
    produce_and_consume,
    run_pip,
)


def main() -> int:
    try:
        with tempfile.TemporaryDirectory() as name:
            make_packages(Path(name))
    except BuildFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


def make_packages(directory: Path) -> None:
    print("== building")
    packages = build_packages(directory)
    print("== twine check")
    print(check_packages(packages), end="")
    print("== node in a clean environment (PyPI)")
    environment = create_environment(directory / "fresh")
    run_pip(environment, "install", "--quiet", str(packages[0]))
    print(f"produced and consumed: {produce_and_consume(environment, directory)}", end="")
    (ROOT / "dist").mkdir(exist_ok=True)
    for package in packages:
        print(f"dist/{Path(shutil.copy(package, ROOT / 'dist')).name}")


if __name__ == "__main__":
    sys.exit(main())
