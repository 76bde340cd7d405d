"""`chronik pipeline audit`: compare replicas, tables, committed offsets and metadata of a cluster."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chronik.cli.arguments import (
    InvalidInput,
    add_client_config_argument,
    add_debug_argument,
    add_json_argument,
    add_registry_argument,
    load_security,
    parse_bootstrap_access,
    parse_timestamp_ms,
)
from chronik.cli.output import print_json
from chronik.cli.pipeline.registry_argument import parse_registry_argument
from chronik.cli.pipeline.table_location import S3_HELP, add_table_root_arguments, parse_storage_options

if TYPE_CHECKING:
    from chronik.config import Address
    from chronik.console.http_client import HttpAccess
    from chronik.pipeline.audit.log_comparison import AuditProgressCallback
    from chronik.pipeline.audit.start import AuditPoint, AuditPoints, AuditStart

EXIT_AUDIT_FAILED = 2

OFFSET_PREFIX: Final = "offset:"
HTTPS: Final = "https://"
TOKEN_VARIABLE: Final = "CHRONIK_HTTP_TOKEN"
"""Name of the environment variable with the nodes' HTTP token, which `chronik start` also reads."""


def add_arguments(actions: Any) -> None:
    parser = actions.add_parser(
        "audit",
        help="verify replicas, tables, committed offsets and metadata",
        description="Read the data directories of all nodes and the tables, and report inconsistencies. "
        "Exit code 0: no findings; 1: findings; 2: the audit failed.",
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--data-dir",
        action="extend",
        nargs="+",
        required=True,
        metavar="DIR",
        help="data directories of the nodes; missing ones are reported as not audited",
    )
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="a broker of the running cluster; without it, the nodes must be stopped",
    )
    add_client_config_argument(parser)
    add_table_root_arguments(parser, help=f"also compare the tables in DIR, {S3_HELP}, with the logs")
    parser.add_argument("--topics", metavar="A,B", help="audit only these topics (default: all)")
    parser.add_argument(
        "--since",
        action="append",
        default=[],
        metavar="[TOPIC=]START|FILE",
        help="audit only from START on: a time, offset:N, or offsets by partition such as '{\"0\": 100}'; or only what "
        "was appended after an earlier audit, whose --json report is in FILE",
    )
    parser.add_argument(
        "--http",
        action="extend",
        nargs="+",
        default=[],
        metavar="[https://]HOST:PORT",
        help="HTTP addresses of the running nodes, to compare their state in memory; the token is read from "
        f"{TOKEN_VARIABLE}, and trusted certificates from the file of --client-config",
    )
    add_registry_argument(parser)
    parser.add_argument(
        "--master",
        metavar="URL",
        help="spark://HOST:PORT, local[N]; also CHRONIK_SPARK_MASTER (default: local; small audits need no Spark)",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", dest="html_file", help="also write the report to FILE, as one HTML page"
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
        return EXIT_AUDIT_FAILED


def _run(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("pyspark", "pyarrow", "deltalake")
    from chronik.pipeline.audit import audit

    if arguments.html_file is not None and not arguments.html_file.absolute().parent.is_dir():
        raise InvalidInput(f"--html {arguments.html_file}: its directory does not exist")
    http, http_way = _parse_http_access(arguments)
    report = audit(
        arguments.data_dir,
        bootstrap=parse_bootstrap_access(arguments) if arguments.bootstrap_server else None,
        table_root=arguments.table_root,
        storage_options=parse_storage_options(arguments),
        topics=None if arguments.topics is None else [name for name in arguments.topics.split(",") if name],
        http=http,
        http_access=http_way,
        master=arguments.master,
        progress=_create_progress_callback(),
        registry=parse_registry_argument(arguments),
        start=_parse_start(arguments.since),
    )
    if arguments.html_file is not None:
        from chronik.pipeline.audit.html_report import write_html_report

        write_html_report(report, arguments.html_file)
    if arguments.json:
        print_json(report.to_json())
    else:
        print(report.to_text())
    return report.exit_code


def _parse_start(texts: Sequence[str]) -> AuditStart | AuditPoints | None:
    """Parse the --since arguments: one file, or points by topic; raise InvalidInput if one is invalid."""
    from chronik.pipeline.audit.start import read_start_from_report

    if not texts:
        return None
    if len(texts) == 1 and (Path(texts[0]).exists() or not _is_point(texts[0])):
        return read_start_from_report(Path(texts[0]))
    points: dict[str, AuditPoint] = {}
    for text in texts:
        topic, _, point = text.rpartition("=")
        points[topic] = _parse_point(point)
    return points


def _is_point(text: str) -> bool:
    try:
        _parse_point(text.rpartition("=")[2])
    except InvalidInput:
        return "=" in text or text.startswith((OFFSET_PREFIX, "{"))
    return True


def _parse_point(text: str) -> AuditPoint:
    from chronik.pipeline.audit.start import AuditPoint

    if text.startswith(OFFSET_PREFIX):
        number = text.removeprefix(OFFSET_PREFIX)
        if not number.isdecimal():
            raise InvalidInput(f"--since {text!r}: expected a number after {OFFSET_PREFIX}")
        return AuditPoint(offset=int(number))
    if text.startswith("{"):
        return AuditPoint(offsets=_parse_offsets(text))
    return AuditPoint(timestamp_ms=parse_timestamp_ms(text))


def _parse_offsets(text: str) -> dict[int, int]:
    try:
        found = json.loads(text)
    except ValueError:
        found = {}
    is_valid = all(name.isascii() and name.isdecimal() and type(offset) is int for name, offset in found.items())
    if not found or not is_valid or min(found.values()) < 0:
        raise InvalidInput(f'--since {text}: expected offsets by partition, such as {{"0": 100, "1": 57}}')
    return {int(name): offset for name, offset in found.items()}


def _parse_http_access(arguments: argparse.Namespace) -> tuple[list[Address], HttpAccess]:
    """Return the --http addresses, the token and the TLS context; raise InvalidInput if an address is invalid."""
    from chronik.client.access.tls import create_ssl_context
    from chronik.client.cluster import parse_bootstrap
    from chronik.console.http_client import HttpAccess

    uses_tls = {text.startswith(HTTPS) for text in arguments.http}
    if len(uses_tls) > 1:
        raise InvalidInput(f"--http: use {HTTPS} for all addresses or for none")
    addresses = [address for text in arguments.http for address in parse_bootstrap(text.removeprefix(HTTPS))]
    tls = create_ssl_context(load_security(arguments)) if True in uses_tls else None
    return addresses, HttpAccess(os.environ.get(TOKEN_VARIABLE) or None, tls)


def _create_progress_callback() -> AuditProgressCallback:
    """Return a progress callback that shows a bar while logs are read, then one while tables are read."""
    from chronik.limits import MIB
    from chronik.pipeline.journal.progress_bar import ProgressBar

    bars: dict[str, ProgressBar] = {}

    def show(what: str, done: int, total: int) -> None:
        size, unit = (MIB, "MiB") if what == "logs" else (1, "tables")
        bar = bars.setdefault(what, ProgressBar(what, unit=unit))
        bar.update(done // size, total // size)
        if done >= total:
            bar.close()

    return show
