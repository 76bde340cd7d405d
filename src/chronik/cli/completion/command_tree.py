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
from chronik.bench.main import create_parser as bench_parser_of
from chronik.cli.main import COMMANDS, build_parser


class ValueKind(Enum):
    """The kind of a command-line value, such as a file or topic, by which the shell completes it."""

    FILE = "file"
    DIRECTORY = "folder"
    TOPIC = "topic"
    ANY = "anything"


KINDS_BY_METAVAR: Final = {
    "FILE": ValueKind.FILE,
    "DIR": ValueKind.DIRECTORY,
    "FOLDER": ValueKind.DIRECTORY,
    "TOPIC": ValueKind.TOPIC,
}
_DEFAULT: Final = re.compile(r"\s*\([^()]*%\([^()]*\)[^()]*\)")
"""Pattern of the default value in an option's help text, which completion scripts omit."""


@dataclass(frozen=True)
class ArgumentValue:
    """The expected value of a command's positional argument or option."""

    choices: tuple[str, ...]
    kind: ValueKind
    repeats: bool


@dataclass(frozen=True)
class CommandOption:
    names: tuple[str, ...]
    summary: str
    value: ArgumentValue | None
    """The option's value, or None for a flag."""


@dataclass(frozen=True)
class CommandNode:
    """A command or subcommand with the options, arguments and subcommands that can follow it."""

    words: tuple[str, ...]
    subcommands: tuple[tuple[str, str], ...]
    """Subcommands and their help texts."""
    options: tuple[CommandOption, ...]
    values: tuple[ArgumentValue, ...]


def list_command_nodes() -> list[CommandNode]:
    """Return `chronik` and all its commands and subcommands as nodes of the command tree."""
    options = (
        CommandOption(("-h", "--help"), "show help", None),
        CommandOption(("-V", "--version"), "show the version", None),
    )
    found = [CommandNode((), tuple(COMMANDS.items()), options, ())]
    for word in COMMANDS:
        found += _list_bench_nodes() if word == "bench" else _walk_parsers(build_parser(word), (word,))
    return found


def _list_bench_nodes() -> Iterator[CommandNode]:
    """Yield the command nodes of `chronik bench`, whose benchmarks have separate argument parsers."""
    yield CommandNode(("bench",), tuple(MEASUREMENTS.items()), (), ())
    for word in MEASUREMENTS:
        yield from _walk_parsers(bench_parser_of(word), ("bench", word))


def _walk_parsers(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[CommandNode]:
    # argparse has no public way to inspect a parser; these attributes have been stable since its first release.
    known = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    options = [_parse_option(action) for action in known if action.option_strings]
    subparsers = [action for action in known if isinstance(action, argparse._SubParsersAction)]
    others = [action for action in known if not action.option_strings and action not in subparsers]
    summaries = {each.dest: each.help or "" for subparser in subparsers for each in subparser._choices_actions}
    parsers: dict[str, Any] = {name: each for subparser in subparsers for name, each in subparser.choices.items()}
    actions = tuple((name, summaries.get(name, "")) for name in parsers)
    yield CommandNode(words, actions, tuple(options), tuple(map(_parse_value, others)))
    for name, each in parsers.items():
        yield from _walk_parsers(each, (*words, name))


def _parse_option(action: argparse.Action) -> CommandOption:
    about = _DEFAULT.sub("", action.help or "").replace("%%", "%")
    return CommandOption(tuple(action.option_strings), about, None if action.nargs == 0 else _parse_value(action))


def _parse_value(action: argparse.Action) -> ArgumentValue:
    name = re.match(r"[A-Z]*", str(action.metavar or ""))
    kind = KINDS_BY_METAVAR.get(name[0] if name else "", ValueKind.ANY)
    return ArgumentValue(tuple(map(str, action.choices or ())), kind, action.nargs in ("*", "+"))
