"""`chronik pipeline audit`: checks that everything on the nodes' disks, and in the tables, is as it must be."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from chronik.cli.arguments import (
    WrongInput,
    add_client_config_argument,
    add_debug_argument,
    add_json_argument,
    bootstrap_of,
    security_of,
)
from chronik.cli.output import print_json

if TYPE_CHECKING:
    from chronik.config import Address
    from chronik.console.ask import Way
    from chronik.pipeline.audit.logs.compare import Progress

EXIT_COULD_NOT_LOOK = 2

HTTPS: Final = "https://"
TOKEN_VARIABLE: Final = "CHRONIK_HTTP_TOKEN"
"""As it is for nodes."""


def add_arguments(actions: Any) -> None:
    parser = actions.add_parser(
        "audit",
        help="check that replicas, tables, committed offsets and metadata are as they must be",
        description="Reads what every node has on disk, and the tables, and says what is not as it must be. "
        "Exit code 0: everything is; 1: something is not; 2: it could not be looked at.",
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--data-dir",
        action="extend",
        nargs="+",
        required=True,
        metavar="DIR",
        help="the nodes' data folders: give all of them, or the rest is reported as not looked at",
    )
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="a broker of the running cluster; without it the nodes are taken to be stopped",
    )
    add_client_config_argument(parser)
    parser.add_argument("--table-root", metavar="DIR", help="compare the tables there with the log, too")
    parser.add_argument("--topics", metavar="A,B", help="only these (default: all)")
    parser.add_argument(
        "--http",
        action="extend",
        nargs="+",
        default=[],
        metavar="[https://]HOST:PORT",
        help="the running nodes' HTTP ports: compare what they hold in memory, too. Their token is in "
        f"{TOKEN_VARIABLE}, and whom to trust in the file of --client-config",
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        help="spark://HOST:PORT, local[N]; also CHRONIK_SPARK_MASTER (default: this machine, and no Spark for little)",
    )
    add_json_argument(parser)
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    from chronik.errors import ChronikError

    try:
        return _run(arguments)
    except (ChronikError, OSError) as error:
        if arguments.debug:
            raise
        print(f"chronik: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_COULD_NOT_LOOK


def _run(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.doctor import require

    require("pyspark", "pyarrow", "deltalake")
    from chronik.pipeline.audit import audit

    http, http_way = _http(arguments)
    report = audit(
        arguments.data_dir,
        bootstrap=bootstrap_of(arguments) if arguments.bootstrap_server else None,
        table_root=arguments.table_root,
        topics=None if arguments.topics is None else [name for name in arguments.topics.split(",") if name],
        http=http,
        http_way=http_way,
        master=arguments.master,
        progress=_bars(),
    )
    if arguments.json:
        print_json(report.to_json())
    else:
        print(report.text())
    return report.exit_code


def _http(arguments: argparse.Namespace) -> tuple[list[Address], Way]:
    """Raises WrongInput, ClientError."""
    from chronik.client.access.tls import context_of
    from chronik.client.cluster import parse_bootstrap
    from chronik.console.ask import Way

    secured = {text.startswith(HTTPS) for text in arguments.http}
    if len(secured) > 1:
        raise WrongInput(f"--http: expected {HTTPS} before all of them, or before none")
    addresses = [address for text in arguments.http for address in parse_bootstrap(text.removeprefix(HTTPS))]
    tls = context_of(security_of(arguments)) if True in secured else None
    return addresses, Way(os.environ.get(TOKEN_VARIABLE) or None, tls)


def _bars() -> Progress:
    """A bar for the logs, then one for the tables; nothing where nobody looks."""
    from chronik.limits import MIB
    from chronik.pipeline.journal.bars import Bar

    bars: dict[str, Bar] = {}

    def show(what: str, done: int, total: int) -> None:
        size, unit = (MIB, "MiB") if what == "logs" else (1, "tables")
        bar = bars.setdefault(what, Bar(what, unit=unit))
        bar.reach(done // size, total // size)
        if done >= total:
            bar.close()

    return show
