"""`chronik export`: prints what a cluster has as a file for `chronik apply`."""

from __future__ import annotations

import argparse
from typing import Final

from chronik.cli.applying.present import whole_state
from chronik.cli.applying.writing import as_toml
from chronik.cli.arguments import add_client_arguments, cluster_of

HEADING: Final = """\
# What a cluster has, as chronik export saw it; chronik apply makes it so again, there or elsewhere.
# Passwords are not in it: where a user is to be made, it needs a password_file or a password_env."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser, run_export)


def run_export(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        state = whole_state(cluster)
    print(HEADING)
    print(as_toml(state), end="")
    return 0
