"""`chronik pipeline`: the parser of its subcommands. Each subcommand imports its dependencies when it runs."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from chronik.cli.arguments import (
    add_client_config_argument,
    add_debug_argument,
    add_json_argument,
    parse_bootstrap_access,
)
from chronik.cli.output import format_table, print_json
from chronik.cli.pipeline import audit as pipeline_audit
from chronik.cli.pipeline import rebuild as pipeline_rebuild
from chronik.cli.pipeline import repair as pipeline_repair
from chronik.cli.pipeline import run as pipeline_run
from chronik.cli.pipeline import schema as pipeline_schema
from chronik.cli.pipeline import sql as pipeline_sql
from chronik.cli.pipeline import status as pipeline_status
from chronik.cli.pipeline import table_listing as pipeline_table_listing
from chronik.cli.pipeline import tables as pipeline_tables
from chronik.cli.pipeline.table_location import S3_HELP, add_table_root_arguments, parse_storage_options

EXIT_OK, EXIT_FAILED = 0, 1

MARKS = {"good": "ok", "doubtful": "?", "wrong": "WRONG"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    pipeline_run.add_arguments(actions)
    _add_doctor_arguments(actions.add_parser("doctor", help="check the installation for pipelines, and suggest fixes"))
    _add_server_arguments(
        actions.add_parser("server", help="manage a Spark Connect server, so that queries start quickly")
    )
    pipeline_status.add_arguments(actions)
    pipeline_table_listing.add_arguments(actions)
    pipeline_schema.add_arguments(actions)
    pipeline_sql.add_arguments(actions)
    pipeline_audit.add_arguments(actions)
    pipeline_tables.add_arguments(actions)
    pipeline_rebuild.add_arguments(actions)
    pipeline_repair.add_arguments(actions)


def add_master_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master", metavar="URL", help="spark://HOST:PORT, local[N]; also CHRONIK_SPARK_MASTER (default: this machine)"
    )


# doctor


def _add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run_doctor)
    add_master_argument(parser)
    parser.add_argument("-b", "--bootstrap-server", metavar="HOST:PORT", help="also check whether this broker answers")
    add_client_config_argument(parser)
    add_table_root_arguments(parser, help=f"also check whether tables can be created in DIR, {S3_HELP}")
    add_json_argument(parser)
    add_debug_argument(parser)


def run_doctor(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import CheckStatus, run_checks

    findings = list(
        run_checks(
            master=arguments.master,
            bootstrap=parse_bootstrap_access(arguments) if arguments.bootstrap_server else None,
            table_root=arguments.table_root,
            storage_options=parse_storage_options(arguments),
        )
    )
    wrong = [finding for finding in findings if finding.state is CheckStatus.ERROR]
    if arguments.json:
        print_json({"ready": not wrong, "findings": [asdict(finding) for finding in findings]})
        return EXIT_FAILED if wrong else EXIT_OK
    for finding in findings:
        print(f"{MARKS[finding.state]:<5}  {finding.says}")
        if finding.do:
            print(f"       -> {finding.do}")
    print(f"\n{len(wrong)} wrong: the pipeline cannot run." if wrong else "\nThe pipeline can run.")
    return EXIT_FAILED if wrong else EXIT_OK


# server


def _add_server_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    start = actions.add_parser("start", help="start the server, or show where it runs")
    add_master_argument(start)
    stop = actions.add_parser("stop", help="stop the server")
    status = actions.add_parser("status", help="show whether the server is running")
    for action, run in ((start, run_server_start), (stop, run_server_stop), (status, run_server_status)):
        action.set_defaults(run=run)
        add_json_argument(action)
        add_debug_argument(action)


def run_server_start(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.connect_server import ensure_server
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("pyspark", "grpcio")
    ensure_server(arguments.master)
    return run_server_status(arguments)


def run_server_stop(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.connect_server import stop_server

    stopped = stop_server()
    if arguments.json:
        print_json({"stopped": stopped})
    else:
        print("stopped" if stopped else "no server was running")
    return EXIT_OK


def run_server_status(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.connect_server import find_running_server

    server = find_running_server()
    if arguments.json:
        # The token is not printed, because it allows its holder to run code.
        found = None if server is None else {"pid": server.pid, "port": server.port, "master": server.master}
        print_json({"running": server is not None, "server": found})
    elif server is None:
        print("no server is running")
    else:
        print(format_table(("PID", "PORT", "MASTER", "LOG"), [(server.pid, server.port, server.master, server.log)]))
    return EXIT_OK if server is not None else EXIT_FAILED
