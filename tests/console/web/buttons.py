"""What can be pressed in the console, as its files tell: whatever makes a button takes the name of what it does first,
and a dialog that asks before it acts has it under `action`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import chronik.console.web

STATIC = Path(chronik.console.web.__file__).parent / "static"
MAKERS = STATIC / "ui" / "parts.js"
"""Where buttons are made: they get their names from elsewhere."""

MADE = re.compile(r"(?<![\w.])(?:button|iconButton|copyButton|press)\(")
ASKING = re.compile(r"(?<![\w.])(?:confirm|formDialog)\(\{(?!\s*action, )\s*")
NAMING = re.compile(r"action: ")
NAME = re.compile(r'"([a-z][a-z-]*\??)"')


class Button(NamedTuple):
    file: Path
    code: str
    """What says its name."""
    asks: bool
    """Whether it is that of a dialog."""

    @property
    def names(self) -> set[str]:
        """What is pressed: of a dialog also what opens it."""
        names = set(NAME.findall(self.code))
        return names | {f"{name}?" for name in names} if self.asks else names

    @property
    def is_named(self) -> bool:
        """Here, or where what it does is told from."""
        return bool(self.names) or "action" in self.code


def buttons() -> Iterator[Button]:
    for file in sorted(STATIC.rglob("*.js")):
        text = file.read_text(encoding="utf-8")
        if file != MAKERS:
            yield from (Button(file, name_after(text, made.end()), asks=False) for made in MADE.finditer(text))
        for asking in ASKING.finditer(text):
            naming = NAMING.match(text, asking.end())
            yield Button(file, name_after(text, naming.end()) if naming else "", asks=True)
        for naming in NAMING.finditer(text):
            yield Button(file, name_after(text, naming.end()), asks=True)


def name_after(text: str, start: int) -> str:
    """Neither names nor what chooses between two of them have commas."""
    return re.split(r",|\n", text[start:], maxsplit=1)[0]


def actions() -> set[str]:
    return {name for button in buttons() for name in button.names}


def palette() -> list[str]:
    """The actions that can be jumped to."""
    return re.findall(r'\["plus", "([^"]+)"', (STATIC / "ui" / "palette.js").read_text(encoding="utf-8"))
