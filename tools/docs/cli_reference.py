"""Generator of docs/reference/cli-reference.md: every command with its options, from the argument parsers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from chronik.bench.main import MEASUREMENTS
from chronik.bench.main import create_parser as bench_parser_of
from chronik.cli.arguments import add_client_arguments
from chronik.cli.main import COMMANDS, build_parser

PAGE: Final = Path("docs", "reference", "cli-reference.md")
INTRODUCTION: Final = """\
# Command-line reference

This page lists all commands and options of `chronik`. `chronik COMMAND --help` prints the same. For examples, see
[Records on the command line](../guides/command-line.md) and [Operate a cluster](../operate/operations.md).

| command | description |
|---|---|
"""
COMMON_OPTIONS: Final = ("-h", "--debug")
"""Options that all commands have; mentioned once."""

EXIT_CODES: Final = """
## Exit codes
| exit code | meaning |
|---|---|
| 0 | The command succeeded. |
| 1 | The command failed. It prints the error in one line; `--debug` adds the traceback. |
| 2 | The arguments are invalid. |

Commands that use other exit codes describe them.

"""
CONNECTION_HEADING: Final = """\
## Connection options
Commands that connect to brokers share these options. The section of a command names those that it accepts.

"""


def generate_page() -> str:
    with patch.dict(os.environ):  # some defaults come from the environment
        for name in [name for name in os.environ if name.startswith("CHRONIK_")]:
            del os.environ[name]
        commands = "".join(
            f"| [`chronik {word}`](#chronik-{word}) | {_cell(about)} |\n" for word, about in COMMANDS.items()
        )
        return INTRODUCTION + commands + EXIT_CODES + _connection_options() + "\n".join(_all_commands())


def _connection_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    add_client_arguments(parser, lambda _: 0)
    return parser


def _connection_options() -> str:
    parser = _connection_parser()
    actions = [action for action in parser._actions if not set(COMMON_OPTIONS) & set(action.option_strings)]
    return CONNECTION_HEADING + "\n".join((*_option_table(actions, parser), "", ""))


def _option_table(actions: list[argparse.Action], parser: argparse.ArgumentParser) -> Iterator[str]:
    yield "| option | description |"
    yield "|---|---|"
    for action in actions:
        yield f"| {_names(action)} | {_cell(_help(action, parser))} |"


def _is_connection_option(action: argparse.Action) -> bool:
    return any(
        (action.option_strings, action.help, action.default) == (each.option_strings, each.help, each.default)
        for each in _connection_parser()._actions
    )


def _all_commands() -> Iterator[str]:
    for word in COMMANDS:
        if word == "bench":
            yield f"## chronik bench\n{COMMANDS[word].capitalize()}.\n"
            for measurement in MEASUREMENTS:
                yield from _section(bench_parser_of(measurement), ("bench", measurement))
        else:
            yield from _section(build_parser(word), (word,))


def _section(parser: argparse.ArgumentParser, command: tuple[str, ...], about: str = "") -> Iterator[str]:
    # argparse has no public way to inspect a parser; these names have been stable.
    known = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    subparser_actions = [action for action in known if isinstance(action, argparse._SubParsersAction)]
    own_actions = [
        action
        for action in known
        if action not in subparser_actions and not set(COMMON_OPTIONS) & set(action.option_strings)
    ]
    name = " ".join(("chronik", *command))
    lines = [f"{'#' * min(4, len(command) + 1)} {name}"]
    if said := parser.description or about:
        lines.append(_sentence(said))
    if not subparser_actions:
        lines += ["```text", " ".join((name, *_usage(own_actions))), "```"]
    listed = [action for action in own_actions if not _is_connection_option(action)]
    if omitted := [f"`{action.option_strings[-1]}`" for action in own_actions if action not in listed]:
        names = " and ".join(filter(None, (", ".join(omitted[:-1]), omitted[-1])))
        lines += ["", f"[Connection options](#connection-options): {names}."]
    if listed:
        lines += ["", *_option_table(listed, parser)]
    yield "\n".join(lines) + "\n"
    for subparser_action in subparser_actions:
        help_text = {each.dest: each.help or "" for each in subparser_action._choices_actions}
        for action, each in subparser_action.choices.items():
            yield from _section(each, (*command, action), help_text.get(action, ""))


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
    help_text = (action.help or "") % values
    return f"{help_text} (required)".strip() if action.option_strings and action.required else help_text


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
