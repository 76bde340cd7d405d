"""The command `chronik`: finds the command by its first word and imports that one alone.

A node must answer its first request within 300 ms of exec, so nothing that `start` does not need is imported here.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from importlib import import_module

from chronik.command_parser import CommandParser
from chronik.errors import ChronikError, ConfigError
from chronik.shown import escaping_output
from chronik.wording import suggestion

COMMANDS = {
    "start": "run a node",
    "cluster": "start and stop a cluster on this machine; look at any cluster, let it grow and shrink",
    "backup": "copy a running cluster into a folder, or bring such a copy up to date",
    "restore": "bring a backup into an empty cluster",
    "apply": "make topics, configs, users, ACLs and quotas what a file says",
    "export": "print topics, configs, users, ACLs and quotas as a file for apply",
    "top": "watch a cluster live: nodes, topics, groups, and what needs attention",
    "doctor": "say what is wrong with a node, a folder or a cluster, and what to do",
    "metadata": "show what one node knows: brokers, topics, leaders, in-sync replicas",
    "topics": "create, list, describe, alter and delete topics",
    "users": "list users with passwords, add, alter and delete them",
    "groups": "list, describe, delete and rewind consumer groups",
    "transactions": "list and describe transactions, find those that hang and abort them",
    "acls": "list, add and remove ACLs: who may do what with topics, groups, transactional ids and the cluster",
    "quotas": "list, set and remove quotas of users, clients and addresses",
    "produce": "write lines, JSON or CSV to a topic, from stdin or a file",
    "consume": "write the records of a topic to stdout",
    "pipeline": "turn topics into tables and query them, on Spark",
    "bench": "measure throughput and latency",
    "completion": "print a script that completes commands in bash, zsh or fish",
    "demo": "see three nodes, a stream and a crash; then a table, SQL and an audit",
}
HOMES = {
    "completion": "completion.command",
    "cluster": "cluster.command",
    "demo": "demo.command",
    "pipeline": "pipeline.command",
    "backup": "moving.backup",
    "restore": "moving.restore",
    "apply": "applying.apply",
    "export": "applying.export",
    "produce": "records.produce",
    "consume": "records.consume",
    "top": "top.command",
    "doctor": "doctor.command",
}
"""Where commands are that have a room; the others are beside this file, under their names."""

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
EXIT_REFUSED = 2  # what a node ends with, see chronik.node.run
EXIT_INTERRUPTED = 130  # what a shell reports for SIGINT
EXIT_PIPE_CLOSED = 141  # … and for SIGPIPE

COLUMNS_DEFAULT = 80


def main(argv: list[str] | None = None) -> int:
    with escaping_output():
        return _main(sys.argv[1:] if argv is None else argv)


def _main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_usage())
        return EXIT_OK if words else EXIT_USAGE
    if words[0] in ("-V", "--version"):
        import chronik

        print(f"chronik {chronik.__version__}")
        return EXIT_OK
    if words[0] not in COMMANDS:
        meant = suggestion(words[0], COMMANDS) or "; see chronik --help"
        print(f"chronik: unknown command {words[0]!r}{meant}", file=sys.stderr)
        return EXIT_USAGE
    try:
        code = _run(words[0], words[1:])
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever reads our output has had enough (`… | head`). Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except (ChronikError, OSError) as error:
        if "--debug" in words:
            raise
        print(f"chronik: {' '.join(str(error).split())}", file=sys.stderr)
        # A node that its config keeps from starting was refused: whoever looks after it need not try again.
        return EXIT_REFUSED if words[0] == "start" and isinstance(error, ConfigError) else EXIT_FAILED


def _run(word: str, words: list[str]) -> int:
    if word == "bench":
        return int(import_module("chronik.bench.main").main(words))
    arguments = parser_of(word).parse_args(words)
    return int(arguments.run(arguments))


def parser_of(word: str) -> argparse.ArgumentParser:
    """Returns what reads the words after this one; `bench` has parsers of its own."""
    command = import_module(f"chronik.cli.{HOMES.get(word, word)}")
    about = COMMANDS[word]
    description = f"{about[:1].upper()}{about[1:]}."
    parser = CommandParser(prog=f"chronik {word}", description=description, formatter_class=Help)
    command.add_arguments(parser)
    return parser


class Help(argparse.HelpFormatter):
    """As wide as the terminal. Left to itself, argparse finds that out by shutil, when arguments are added and with
    nothing to show: with what unpacks archives, for as long as a node runs."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_terminal_columns() - 2)


def _terminal_columns() -> int:
    with suppress(ValueError):
        if columns := int(os.environ.get("COLUMNS", 0)):
            return columns
    with suppress(OSError, ValueError, AttributeError):  # no terminal, or closed, or none at all
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or COLUMNS_DEFAULT  # type: ignore[union-attr]
    return COLUMNS_DEFAULT


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {word:<{width}}  {what}" for word, what in COMMANDS.items()]
    more = "chronik COMMAND --help says more; chronik --version prints the version."
    return "\n".join(["usage: chronik COMMAND …", "", *lines, "", more])
