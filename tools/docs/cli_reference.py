"""docs/cli-reference.md: every command with its options, as the parsers have them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from chronik.bench.main import MEASUREMENTS
from chronik.bench.main import parser_of as bench_parser_of
from chronik.cli.main import COMMANDS, parser_of

PAGE: Final = Path("docs", "cli-reference.md")
INTRODUCTION: Final = """\
# Commands

Written by `.venv/bin/python -m tools.docs`, from the parsers of the commands themselves; `chronik COMMAND --help` says
the same. What is typed most is shown at work in [command-line.md](command-line.md); how clusters are run, in
[operations.md](operations.md).

An error is one line and exit code 1; what is typed wrongly, exit code 2; `--debug`, which every command has, shows the
traceback.

| command | what it does |
|---|---|
"""
SHARED: Final = ("-h", "--debug")
"""Options that all commands have: said once."""


def page() -> str:
    with patch.dict(os.environ):  # some defaults are taken from there
        for name in [name for name in os.environ if name.startswith("CHRONIK_")]:
            del os.environ[name]
        commands = "".join(
            f"| [`chronik {word}`](#chronik-{word}) | {_cell(about)} |\n" for word, about in COMMANDS.items()
        )
        return INTRODUCTION + commands + "\n" + "\n".join(_all_commands())


def _all_commands() -> Iterator[str]:
    for word in COMMANDS:
        if word == "bench":
            yield f"## chronik bench\n{COMMANDS[word].capitalize()}.\n"
            for measurement in MEASUREMENTS:
                yield from _section(bench_parser_of(measurement), ("bench", measurement))
        else:
            yield from _section(parser_of(word), (word,))


def _section(parser: argparse.ArgumentParser, words: tuple[str, ...], about: str = "") -> Iterator[str]:
    # argparse has no other way to look at a parser, and has had these names since there is argparse.
    known = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    rooms = [action for action in known if isinstance(action, argparse._SubParsersAction)]
    taken = [action for action in known if action not in rooms and not set(SHARED) & set(action.option_strings)]
    name = " ".join(("chronik", *words))
    lines = [f"{'#' * min(4, len(words) + 1)} {name}"]
    if said := parser.description or about:
        lines.append(_sentence(said))
    if not rooms:
        lines += ["```text", " ".join((name, *_usage(taken))), "```"]
    if taken:
        lines += ["| | |", "|---|---|", *(f"| {_names(action)} | {_cell(_help(action, parser))} |" for action in taken)]
    yield "\n".join(lines) + "\n"
    for room in rooms:
        told = {each.dest: each.help or "" for each in room._choices_actions}
        for action, each in room.choices.items():
            yield from _section(each, (*words, action), told.get(action, ""))


def _sentence(text: str) -> str:
    text = " ".join(text.split()).replace("%%", "%")
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _usage(actions: list[argparse.Action]) -> Iterator[str]:
    for action in actions:
        if not action.option_strings:
            value = _value(action)
            yield {"*": f"[{value}…]", "+": f"{value}…", "?": f"[{value}]"}.get(str(action.nargs), value)
        elif action.required:
            yield f"{action.option_strings[-1]} {_value(action)}".rstrip()
    if any(action.option_strings and not action.required for action in actions):
        yield "[OPTIONS]"


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    return action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_value(action)}`".replace("|", "\\|")
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    value = _value(action)
    return f"{names} `{value}`".replace("|", "\\|") if value else names


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    values: dict[str, Any] = {**vars(action), "prog": parser.prog}
    if action.choices:
        values["choices"] = ", ".join(map(str, action.choices))
    told = (action.help or "") % values
    return f"{told} (needed)".strip() if action.option_strings and action.required else told


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
