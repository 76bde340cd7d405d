"""All commands with their actions, options and values, as their own parsers have them: what can be completed, and how.

What a word stands for is told by its metavar (TOPIC, FILE, DIR), so that a new option needs nothing here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from chronik.bench.main import MEASUREMENTS
from chronik.bench.main import parser_of as bench_parser_of
from chronik.cli.main import COMMANDS, parser_of


class Kind(Enum):
    """What a word is, if it is none of some choices."""

    FILE = "file"
    FOLDER = "folder"
    TOPIC = "topic"
    ANYTHING = "anything"


KINDS: Final = {"FILE": Kind.FILE, "DIR": Kind.FOLDER, "FOLDER": Kind.FOLDER, "TOPIC": Kind.TOPIC}
_DEFAULT: Final = re.compile(r"\s*\([^()]*%\([^()]*\)[^()]*\)")
"""What is said of a default, which is that of the moment when a script is made."""


@dataclass(frozen=True)
class Value:
    """A word that a command or an option takes."""

    choices: tuple[str, ...]
    kind: Kind
    repeats: bool


@dataclass(frozen=True)
class Option:
    names: tuple[str, ...]
    about: str
    value: Value | None
    """None: it is there or not."""


@dataclass(frozen=True)
class Place:
    """After these words: which may follow, or which options and values."""

    words: tuple[str, ...]
    actions: tuple[tuple[str, str], ...]
    """Each with what it is about."""
    options: tuple[Option, ...]
    values: tuple[Value, ...]


def places() -> list[Place]:
    """Returns all of them, the first being the command `chronik` itself."""
    options = (Option(("-h", "--help"), "say what there is", None), Option(("-V", "--version"), "which it is", None))
    found = [Place((), tuple(COMMANDS.items()), options, ())]
    for word in COMMANDS:
        found += _benches() if word == "bench" else _walk(parser_of(word), (word,))
    return found


def _benches() -> Iterator[Place]:
    """The measurements are found by their names, as the commands are."""
    yield Place(("bench",), tuple(MEASUREMENTS.items()), (), ())
    for word in MEASUREMENTS:
        yield from _walk(bench_parser_of(word), ("bench", word))


def _walk(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[Place]:
    # argparse has no other way to look at a parser, and has had these names since there is argparse.
    known = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    options = [_option(action) for action in known if action.option_strings]
    rooms = [action for action in known if isinstance(action, argparse._SubParsersAction)]
    others = [action for action in known if not action.option_strings and action not in rooms]
    about = {each.dest: each.help or "" for room in rooms for each in room._choices_actions}
    parsers: dict[str, Any] = {name: each for room in rooms for name, each in room.choices.items()}
    actions = tuple((name, about.get(name, "")) for name in parsers)
    yield Place(words, actions, tuple(options), tuple(map(_value, others)))
    for name, each in parsers.items():
        yield from _walk(each, (*words, name))


def _option(action: argparse.Action) -> Option:
    about = _DEFAULT.sub("", action.help or "").replace("%%", "%")
    return Option(tuple(action.option_strings), about, None if action.nargs == 0 else _value(action))


def _value(action: argparse.Action) -> Value:
    name = re.match(r"[A-Z]*", str(action.metavar or ""))
    kind = KINDS.get(name[0] if name else "", Kind.ANYTHING)
    return Value(tuple(map(str, action.choices or ())), kind, action.nargs in ("*", "+"))
