"""Package metadata that is not in pyproject.toml: the description, which is README.md without relative links.

Relative links do not work on a package index.
"""

import re
from pathlib import Path

from setuptools import setup

LINK_SECTIONS = ("Documentation",)
"""Sections that consist of links."""


def description(readme: str) -> str:
    sections = re.split(r"^(?=## )", readme, flags=re.MULTILINE)
    kept = [section for section in sections if not section.startswith(tuple(f"## {name}\n" for name in LINK_SECTIONS))]
    text = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", "".join(kept))
    return f"{text.rstrip()}\n\nThe documentation is in the docs directory of the source distribution. Apache-2.0.\n"


if __name__ == "__main__":
    setup(
        long_description=description(Path(__file__).with_name("README.md").read_text(encoding="utf-8")),
        long_description_content_type="text/markdown",
    )
