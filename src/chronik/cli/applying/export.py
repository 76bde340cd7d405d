"""`chronik export`: print the state of a cluster as a TOML file for `chronik apply`."""

from __future__ import annotations

import argparse
from typing import Final

from chronik.cli.applying.present import whole_state
from chronik.cli.applying.writing import as_toml
from chronik.cli.arguments import add_client_arguments, cluster_of

FILE_HEADER: Final = """\
# The state of a cluster, printed by chronik export; chronik apply restores it on this or another cluster.
# Passwords are not exported: to create a user, add a password_file or a password_env."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser, run_export)


def run_export(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        state = whole_state(cluster)
    print(FILE_HEADER)
    print(as_toml(state), end="")
    return 0
