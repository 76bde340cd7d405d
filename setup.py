"""Everything about the package is in pyproject.toml, but its description: that is README.md without links into this
repository, since they lead nowhere from where packages are shown."""

import re
from pathlib import Path

from setuptools import setup

ONLY_LINKS = ("Running it", "Read on", "See it")
"""Sections that would say nothing without them, or without their picture."""


def description(readme: str) -> str:
    sections = re.split(r"^(?=## )", readme, flags=re.MULTILINE)
    kept = [section for section in sections if not section.startswith(tuple(f"## {name}\n" for name in ONLY_LINKS))]
    text = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", "".join(kept))
    return f"{text.rstrip()}\n\nThe documentation is in the folder docs of the source distribution. Apache-2.0.\n"


if __name__ == "__main__":
    setup(
        long_description=description(Path(__file__).with_name("README.md").read_text(encoding="utf-8")),
        long_description_content_type="text/markdown",
    )
