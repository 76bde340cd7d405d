"""`chronik start`: run one node, or several node processes with `--processes`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from chronik.config import DEFAULT_HTTP_ADDRESS, FLUSH_MODES, LOG_FORMATS, load_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=os.environ.get("CHRONIK_CONFIG") or None,
        help="TOML config file; command-line options override it (default: CHRONIK_CONFIG in the environment)",
    )
    parser.add_argument("--data", metavar="DIR", help="data directory (default: data)")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="address for Kafka clients (default: 127.0.0.1:9092)")
    parser.add_argument(
        "--advertised",
        metavar="HOST:PORT",
        help="address that the broker advertises to clients (default: the address of --kafka)",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="address of the console, the admin API, health checks and metrics; off: disabled "
        "(default: 127.0.0.1:6092, if free)",
    )
    parser.add_argument(
        "--registry",
        metavar="HOST:PORT",
        help="address of a listener that serves only the schema registry (default: none; the address of --http serves "
        "it under /registry)",
    )
    parser.add_argument("--node-id", metavar="N", help="node id, which is also the broker id (default: 1)")
    parser.add_argument(
        "--flush",
        choices=FLUSH_MODES,
        help="group: sync records to disk before they are acknowledged (default); os: leave that to the page cache",
    )
    parser.add_argument("--restore-identity", action="store_true", help="recreate a lost node.json from the metadata")
    parser.add_argument(
        "--add-scram",
        metavar="NAME",
        help="create this SCRAM user if the cluster has no users",
    )
    parser.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="file with the user's password on its first line (default: CHRONIK_PASSWORD in the environment, or a "
        "prompt)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="run N nodes with consecutive ids from node_id, as listed in [[peers]]; this machine is their rack",
    )
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info (default), warning or error")
    parser.add_argument(
        "--log-format", choices=LOG_FORMATS, help="text: plain lines (default); json: one JSON object per line"
    )
    parser.add_argument("--debug", action="store_true", help="log every request, and show the traceback of an error")


def run(arguments: argparse.Namespace) -> int:
    log_level = arguments.log_level or ("debug" if arguments.debug else None)
    config = load_config(
        arguments.config,
        data_dir=arguments.data,
        kafka=arguments.kafka,
        advertised=arguments.advertised,
        http=arguments.http,
        http_default=DEFAULT_HTTP_ADDRESS,
        registry=arguments.registry,
        node_id=arguments.node_id,
        flush=arguments.flush,
        log_level=log_level,
        log_format=arguments.log_format,
    )
    if arguments.processes is not None:
        from chronik.cli import process_supervisor

        words = process_supervisor.build_common_arguments(
            arguments.config, flush=arguments.flush, log_level=log_level, log_format=arguments.log_format
        )
        words += process_supervisor.build_first_user_arguments(arguments.add_scram, arguments.password_file)
        return process_supervisor.supervise_nodes(
            process_supervisor.plan_node_processes(config, arguments.processes, words), config.log_format
        )
    user = None
    if arguments.add_scram is not None:
        from chronik.admin.users import create_first_user_command
        from chronik.cli.passwords import read_password

        user = create_first_user_command(
            arguments.add_scram, read_password(arguments.password_file, arguments.add_scram)
        )
    # Imported after the config is loaded, so that config errors are reported quickly.
    from chronik.node.memory_tuning import disable_gc

    with disable_gc():
        from chronik.node.run import run as run_node
    return run_node(config, restore_identity=arguments.restore_identity, first_user=user)
