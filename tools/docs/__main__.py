"""`python -m tools.docs`: regenerates the generated pages and images of docs/."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tools.docs import cli_reference, clients_table, node_keys, pictures, python_api

ROOT: Final = Path(__file__).parents[2]


def written() -> dict[Path, str]:
    """Return the text of all generated files, by path relative to the repository root."""
    return {
        cli_reference.PAGE: cli_reference.page(),
        node_keys.PAGE: node_keys.page(),
        python_api.PAGE: python_api.page(),
        clients_table.PAGE: clients_table.page(),
        **pictures.pictures(),
    }


def main() -> int:
    for path, text in written().items():
        target = ROOT / path
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
