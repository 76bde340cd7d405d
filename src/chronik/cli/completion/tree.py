"""The tree of all commands with their subcommands, options and values, read from their argument parsers.

The metavar of an argument (TOPIC, FILE, DIR) determines how it is completed, so a new option needs no change here.
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
    """How a value is completed if it has no choices."""

    FILE = "file"
    FOLDER = "folder"
    TOPIC = "topic"
    ANYTHING = "anything"


KINDS_BY_METAVAR: Final = {"FILE": Kind.FILE, "DIR": Kind.FOLDER, "FOLDER": Kind.FOLDER, "TOPIC": Kind.TOPIC}
_DEFAULT: Final = re.compile(r"\s*\([^()]*%\([^()]*\)[^()]*\)")
"""A default in a help text, which is left out of the script."""


@dataclass(frozen=True)
class Value:
    """A value of a positional argument or an option."""

    choices: tuple[str, ...]
    kind: Kind
    repeats: bool


@dataclass(frozen=True)
class Option:
    names: tuple[str, ...]
    about: str
    value: Value | None
    """The option's value, or None for a flag."""


@dataclass(frozen=True)
class Place:
    """A command or subcommand: what can follow its words."""

    words: tuple[str, ...]
    actions: tuple[tuple[str, str], ...]
    """Subcommands and their help texts."""
    options: tuple[Option, ...]
    values: tuple[Value, ...]


def places() -> list[Place]:
    """Return the nodes of the command tree; the first is `chronik` itself."""
    options = (Option(("-h", "--help"), "show help", None), Option(("-V", "--version"), "show the version", None))
    found = [Place((), tuple(COMMANDS.items()), options, ())]
    for word in COMMANDS:
        found += _bench_nodes() if word == "bench" else _walk_parsers(parser_of(word), (word,))
    return found


def _bench_nodes() -> Iterator[Place]:
    """Yield the nodes of `chronik bench`, whose measurements have parsers of their own."""
    yield Place(("bench",), tuple(MEASUREMENTS.items()), (), ())
    for word in MEASUREMENTS:
        yield from _walk_parsers(bench_parser_of(word), ("bench", word))


def _walk_parsers(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[Place]:
    # argparse has no public way to inspect a parser; these attributes have been stable since its first release.
    known = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    options = [_parse_option(action) for action in known if action.option_strings]
    subparsers = [action for action in known if isinstance(action, argparse._SubParsersAction)]
    others = [action for action in known if not action.option_strings and action not in subparsers]
    summaries = {each.dest: each.help or "" for subparser in subparsers for each in subparser._choices_actions}
    parsers: dict[str, Any] = {name: each for subparser in subparsers for name, each in subparser.choices.items()}
    actions = tuple((name, summaries.get(name, "")) for name in parsers)
    yield Place(words, actions, tuple(options), tuple(map(_parse_value, others)))
    for name, each in parsers.items():
        yield from _walk_parsers(each, (*words, name))


def _parse_option(action: argparse.Action) -> Option:
    about = _DEFAULT.sub("", action.help or "").replace("%%", "%")
    return Option(tuple(action.option_strings), about, None if action.nargs == 0 else _parse_value(action))


def _parse_value(action: argparse.Action) -> Value:
    name = re.match(r"[A-Z]*", str(action.metavar or ""))
    kind = KINDS_BY_METAVAR.get(name[0] if name else "", Kind.ANYTHING)
    return Value(tuple(map(str, action.choices or ())), kind, action.nargs in ("*", "+"))
