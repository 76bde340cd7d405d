"""`chronik completion`: print a shell's completion script, or the topic names that the script requests."""

from __future__ import annotations

import argparse

from chronik.cli.arguments import CLIENT_ID, add_bootstrap_argument, add_debug_argument, parse_bootstrap_access
from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError
from chronik.metadata.names import find_topic_name_error

REQUEST_TIMEOUT_SECONDS = 1.0
"""Timeout in seconds of requests for shell completion, during which the shell blocks."""

TOPICS = "topics"
EXIT_OK, EXIT_FAILED = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    parser.add_argument(
        "shell",
        choices=("bash", "zsh", "fish", TOPICS),
        help="shell to print a script for; topics: print topic names, or nothing if no broker answers within a second",
    )
    add_bootstrap_argument(parser)
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.shell == TOPICS:
        return _print_topics(arguments)
    print(get_completion_script(arguments.shell), end="")
    return EXIT_OK


def get_completion_script(shell: str) -> str:
    # Imported here, because topic names do not need all commands.
    from chronik.cli.completion.command_tree import list_command_nodes
    from chronik.cli.completion.scripts import ZSH_PREAMBLE, bash_script, fish_script

    if shell == "fish":
        return fish_script(list_command_nodes())
    return (ZSH_PREAMBLE if shell == "zsh" else "") + bash_script(list_command_nodes())


def _print_topics(arguments: argparse.Namespace) -> int:
    """Print topic names for shell completion, and suppress errors.

    A message would corrupt the command line being edited.
    """
    try:
        print("".join(f"{name}\n" for name in _list_topics(arguments)), end="")
    except (ChronikError, OSError):
        if arguments.debug:
            raise
        return EXIT_FAILED
    return EXIT_OK


def _list_topics(arguments: argparse.Namespace) -> list[str]:
    """Return the names of non-internal topics. Drop invalid names, because the shell would interpret them."""
    servers = arguments.bootstrap_server.count(",") + 1
    with ClusterClient(
        parse_bootstrap_access(arguments), client_id=CLIENT_ID, timeout_s=REQUEST_TIMEOUT_SECONDS / servers
    ) as cluster:
        topics = cluster.metadata(None).topics
    names = [topic.name for topic in topics if topic.name and not topic.is_internal]
    return sorted(name for name in names if not name.startswith("__") and not find_topic_name_error(name))
