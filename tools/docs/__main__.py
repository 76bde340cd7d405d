"""`python -m tools.docs`: regenerates the generated pages and images of docs/."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tools.docs import (
    architecture_images,
    benchmark_pages,
    cli_reference,
    client_compatibility,
    configuration_page,
    python_api,
)
from tools.docs.files import write_changed_files

ROOT: Final = Path(__file__).parents[2]


def generate_all() -> dict[Path, str]:
    """Return the text of all generated files, by path relative to the repository root."""
    return {
        cli_reference.PAGE: cli_reference.generate_page(),
        configuration_page.PAGE: configuration_page.generate_page(),
        python_api.PAGE: python_api.generate_page(),
        client_compatibility.PAGE: client_compatibility.generate_page(),
        **architecture_images.generate_images(),
        **benchmark_pages.generate_files(ROOT),
    }


def main() -> int:
    write_changed_files(generate_all(), ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
