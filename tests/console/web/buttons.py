"""The buttons of the console, extracted from its scripts.

The first argument of functions that create buttons is the name of the action; dialogs have it under `action`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import chronik.console.web

STATIC = Path(chronik.console.web.__file__).parent / "static"
BUTTON_MODULE = STATIC / "ui" / "parts.js"
"""The module that creates buttons; it gets the action names from its callers."""

BUTTON_CALL = re.compile(r"(?<![\w.])(?:button|iconButton|copyButton|press)\(")
DIALOG_CALL = re.compile(r"(?<![\w.])(?:confirm|formDialog)\(\{(?!\s*action,)\s*")
ACTION_KEY = re.compile(r"action:\s")
ACTION_NAME = re.compile(r'"([a-z][a-z-]*\??)"')


PRESSED_ON_ONE_NODE = frozenset(
    {
        "cancel-statistics",
        "clear-selection",
        "clone-topic?",
        "compute-statistics",
        "delete-groups",
        "delete-groups?",
        "delete-topics",
        "delete-topics?",
        "select-all",
        "set-config-of-topics",
        "set-config-of-topics?",
        "use-as-condition",
    }
)
"""Actions that test_topics_and_groups.py tests, on a cluster of one node."""


class ConsoleButton(NamedTuple):
    file: Path
    code: str
    """The source code of the action name."""
    is_dialog: bool
    """Whether the button belongs to a dialog."""

    @property
    def names(self) -> set[str]:
        """The action names; for a dialog also that of the button that opens it."""
        names = set(ACTION_NAME.findall(self.code))
        return names | {f"{name}?" for name in names} if self.is_dialog else names

    @property
    def is_named(self) -> bool:
        """Whether the action is named here or by a variable."""
        return bool(self.names) or "action" in self.code


def find_buttons() -> Iterator[ConsoleButton]:
    for file in sorted(STATIC.rglob("*.js")):
        text = file.read_text(encoding="utf-8")
        if file != BUTTON_MODULE:
            yield from (
                ConsoleButton(file, extract_name(text, call.end()), is_dialog=False)
                for call in BUTTON_CALL.finditer(text)
            )
        for call in DIALOG_CALL.finditer(text):
            key = ACTION_KEY.match(text, call.end())
            yield ConsoleButton(file, extract_name(text, key.end()) if key else "", is_dialog=True)
        for key in ACTION_KEY.finditer(text):
            yield ConsoleButton(file, extract_name(text, key.end()), is_dialog=True)


def extract_name(text: str, start: int) -> str:
    """Return the expression up to the next comma or the end of its last line; action names contain no commas."""
    return re.split(r",|\n(?!\s+[?:])", text[start:].lstrip(), maxsplit=1)[0]


def action_names() -> set[str]:
    return {name for button in find_buttons() for name in button.names}


def palette_actions() -> list[str]:
    """Return the actions in the command palette."""
    return re.findall(r'\["plus", "([^"]+)"', (STATIC / "ui" / "palette.js").read_text(encoding="utf-8"))
