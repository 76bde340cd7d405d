"""The command line interface `chronik`: dispatch to the subcommand named by the first argument.

Only the selected subcommand is imported, because a node must answer its first request within 300 ms of exec.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from importlib import import_module

from chronik.command_parser import CommandParser
from chronik.errors import ChronikError, ConfigError
from chronik.escaping import escape_output
from chronik.wording import format_spelling_suggestion

COMMANDS = {
    "start": "run a node",
    "cluster": "run a cluster on this machine; show, resize and upgrade any cluster",
    "backup": "back up a running cluster to a directory, or update an existing backup",
    "restore": "restore a backup into an empty cluster",
    "apply": "change topics, configs, users, ACLs and quotas to match a file",
    "export": "print topics, configs, users, ACLs and quotas as a file for apply",
    "top": "monitor a cluster live: nodes, topics, groups and problems",
    "doctor": "diagnose a node, a data directory or a cluster, and suggest fixes",
    "metadata": "show the metadata of one broker: brokers, topics, leaders and in-sync replicas",
    "topics": "create, list, describe, alter and delete topics",
    "users": "list, add, alter and delete SCRAM users",
    "groups": "list, describe and delete consumer groups, and reset their offsets",
    "transactions": "list and describe transactions; find and abort hanging transactions",
    "acls": "list, add and remove ACLs of topics, groups, transactional ids and the cluster",
    "quotas": "list, set and remove quotas of users, client ids and IP addresses",
    "schemas": "register, check, compare, export and import schemas of a schema registry",
    "produce": "write lines, JSON or CSV from stdin or a file to a topic",
    "consume": "print the records of a topic",
    "pipeline": "land topics in tables and query them with Spark",
    "bench": "measure throughput and latency",
    "completion": "print a completion script for bash, zsh or fish",
    "demo": "run a demo: three nodes, a crash, a table, SQL and an audit",
}
COMMAND_MODULES = {
    "completion": "chronik.cli.completion.command",
    "cluster": "chronik.cli.cluster.command",
    "demo": "chronik.cli.demo",
    "pipeline": "chronik.cli.pipeline.command",
    "backup": "chronik.cli.migration.backup",
    "restore": "chronik.cli.migration.restore",
    "apply": "chronik.cli.apply.command",
    "export": "chronik.cli.apply.export",
    "schemas": "chronik.cli.schemas.command",
    "produce": "chronik.cli.records.produce",
    "consume": "chronik.cli.records.consume",
    "top": "chronik.cli.top.command",
    "doctor": "chronik.cli.doctor.command",
}
"""Modules of the commands that packages implement, by command name.

Any other command is the module `chronik.cli.<command>`.
"""

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
EXIT_REFUSED = 2  # the node's exit code for an invalid config, see chronik.node.run
EXIT_INTERRUPTED = 130  # the exit code that shells report for SIGINT
EXIT_PIPE_CLOSED = 141  # the exit code that shells report for SIGPIPE

COLUMNS_DEFAULT = 80


def main(argv: list[str] | None = None) -> int:
    with escape_output():
        return _main(sys.argv[1:] if argv is None else argv)


def _main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_format_usage())
        return EXIT_OK if words else EXIT_USAGE
    if words[0] in ("-V", "--version"):
        import chronik

        print(f"chronik {chronik.__version__}")
        return EXIT_OK
    if words[0] not in COMMANDS:
        hint = format_spelling_suggestion(words[0], COMMANDS) or "; see chronik --help"
        print(f"chronik: unknown command {words[0]!r}{hint}", file=sys.stderr)
        return EXIT_USAGE
    try:
        code = _run(words[0], words[1:])
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`… | head`). Python's flush at exit would report a second BrokenPipeError.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except (ChronikError, OSError) as error:
        if "--debug" in words:
            raise
        print(f"chronik: {' '.join(str(error).split())}", file=sys.stderr)
        # An invalid config has its own exit code, so that a supervisor does not restart the node.
        return EXIT_REFUSED if words[0] == "start" and isinstance(error, ConfigError) else EXIT_FAILED


def _run(word: str, words: list[str]) -> int:
    if word == "bench":
        return int(import_module("chronik.bench.main").main(words))
    arguments = build_parser(word).parse_args(words)
    return int(arguments.run(arguments))


def build_parser(word: str) -> argparse.ArgumentParser:
    """Return the argument parser of a subcommand other than `bench`, which has its own parsers."""
    command = import_module(COMMAND_MODULES.get(word, f"chronik.cli.{word}"))
    summary = COMMANDS[word]
    description = f"{summary[:1].upper()}{summary[1:]}."
    parser = CommandParser(prog=f"chronik {word}", description=description, formatter_class=TerminalWidthFormatter)
    command.add_arguments(parser)
    return parser


class TerminalWidthFormatter(argparse.HelpFormatter):
    """A formatter of argparse help that uses the full width of the terminal.

    argparse would import shutil, and with it the archive modules, to find the width of the terminal.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_get_terminal_columns() - 2)


def _get_terminal_columns() -> int:
    with suppress(ValueError):
        if columns := int(os.environ.get("COLUMNS", 0)):
            return columns
    with suppress(OSError, ValueError, AttributeError):  # stdout is no terminal, closed or None
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or COLUMNS_DEFAULT  # type: ignore[union-attr]
    return COLUMNS_DEFAULT


def _format_usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {word:<{width}}  {summary}" for word, summary in COMMANDS.items()]
    more = "Run chronik COMMAND --help for details, chronik --version for the version."
    return "\n".join(["usage: chronik COMMAND …", "", *lines, "", more])
