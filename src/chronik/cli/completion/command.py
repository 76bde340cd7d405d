"""`chronik completion`: a script for a shell, and the names of topics, for which such a script asks."""

from __future__ import annotations

import argparse

from chronik.cli.arguments import CLIENT_ID, add_bootstrap_argument, add_debug_argument, bootstrap_of
from chronik.client.cluster import Cluster
from chronik.errors import ChronikError
from chronik.metadata.names import name_fault

ASK_SECONDS = 1.0
"""Somebody has pressed a key, and waits."""

TOPICS = "topics"
EXIT_OK, EXIT_SILENT = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    parser.add_argument(
        "shell",
        choices=("bash", "zsh", "fish", TOPICS),
        help="the shell to print a script for; with `topics`, names of topics, or nothing, within a second or so",
    )
    add_bootstrap_argument(parser)
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.shell == TOPICS:
        return _run_topics(arguments)
    print(script(arguments.shell), end="")
    return EXIT_OK


def script(shell: str) -> str:
    # Scripts are made of all commands, which names of topics do not need.
    from chronik.cli.completion.bash import FOR_ZSH, bash_script
    from chronik.cli.completion.fish import fish_script
    from chronik.cli.completion.tree import places

    if shell == "fish":
        return fish_script(places())
    return (FOR_ZSH if shell == "zsh" else "") + bash_script(places())


def _run_topics(arguments: argparse.Namespace) -> int:
    """Says nothing when it fails: what would be said would stand in the middle of a line that somebody is typing."""
    try:
        print("".join(f"{name}\n" for name in _topics(arguments)), end="")
    except (ChronikError, OSError):
        if arguments.debug:
            raise
        return EXIT_SILENT
    return EXIT_OK


def _topics(arguments: argparse.Namespace) -> list[str]:
    """Names that a topic cannot have are left out: no shell is given what a broker has made up."""
    servers = arguments.bootstrap_server.count(",") + 1
    with Cluster(bootstrap_of(arguments), client_id=CLIENT_ID, timeout_s=ASK_SECONDS / servers) as cluster:
        topics = cluster.metadata(None).topics
    names = [topic.name for topic in topics if topic.name and not topic.is_internal]
    return sorted(name for name in names if not name.startswith("__") and not name_fault(name))
