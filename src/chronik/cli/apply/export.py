"""`chronik export`: print the state of a cluster as a TOML file for `chronik apply`."""

from __future__ import annotations

import argparse
from typing import Final

from chronik.cli.apply.current_state import fetch_complete_cluster_state
from chronik.cli.apply.toml_writer import spec_to_toml
from chronik.cli.arguments import add_client_arguments, connect_cluster

FILE_HEADER: Final = """\
# The state of a cluster, printed by chronik export; chronik apply restores it on this or another cluster.
# Passwords are not exported: to create a user, add a password_file or a password_env."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser, run_export)


def run_export(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        state = fetch_complete_cluster_state(cluster)
    print(FILE_HEADER)
    print(spec_to_toml(state), end="")
    return 0
