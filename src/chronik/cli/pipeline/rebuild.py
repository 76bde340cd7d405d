"""`chronik pipeline rebuild`: decode the records of a table again, with another schema."""

from __future__ import annotations

import argparse
from typing import Any

from chronik.cli.arguments import add_client_arguments, add_json_argument, add_registry_argument, parse_bootstrap_access
from chronik.cli.output import print_json
from chronik.cli.pipeline.registry_argument import parse_registry_argument
from chronik.cli.pipeline.schema import SCHEMA_HELP
from chronik.cli.pipeline.table_location import S3_HELP, add_table_root_arguments, parse_storage_options
from chronik.wording import pluralize

EXIT_OK = 0


def add_arguments(actions: Any) -> None:
    parser: argparse.ArgumentParser = actions.add_parser(
        "rebuild", help="decode the records of a table again, and replace its rows in one commit"
    )
    add_client_arguments(parser, run_rebuild)
    parser.add_argument("topic", metavar="TOPIC")
    add_table_root_arguments(parser, required=True, help=f"directory of the tables, {S3_HELP}")
    parser.add_argument(
        "--schema", metavar="SCHEMA", help=f"{SCHEMA_HELP} (default: the table's schema, or inferred again)"
    )
    parser.add_argument(
        "--from", dest="source", choices=("topic", "rows"),
        help="where to read the records (default: the topic if it has all of them, otherwise the table's rows)",
    )  # fmt: skip
    add_registry_argument(parser)
    parser.add_argument(
        "--master", metavar="URL", help="spark://HOST:PORT, sc://HOST:PORT, local[N]; also CHRONIK_SPARK_MASTER"
        " (default: this machine)",
    )  # fmt: skip
    add_json_argument(parser)


def run_rebuild(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("pyspark", "deltalake", "pyarrow")
    from chronik.pipeline.journal.progress_bar import ProgressBar
    from chronik.pipeline.landing.local_runner import LOCAL_BYTES_MAX
    from chronik.pipeline.maintenance.rebuild import RebuildSource, rebuild_table
    from chronik.pipeline.spark.masters import resolve_master
    from chronik.pipeline.spark.tasks import LazySparkTaskRunner, run_locally
    from chronik.pipeline.tables.catalog import open_table
    from chronik.pipeline.tables.storage import table_uri, to_absolute_root
    from chronik.pipeline.tables.values.table_schema import read_schema

    root, options = to_absolute_root(arguments.table_root), parse_storage_options(arguments)
    size_bytes = sum(file.size_bytes for file in open_table(table_uri(root, arguments.topic), options).files().files)
    is_small = size_bytes <= LOCAL_BYTES_MAX and resolve_master(arguments.master) is None
    with LazySparkTaskRunner(arguments.master) as spark, ProgressBar(f"rebuild {arguments.topic}", unit="tasks") as bar:
        done = rebuild_table(
            root,
            arguments.topic,
            None if arguments.schema is None else read_schema(arguments.schema),
            bootstrap=None if arguments.source == "rows" else parse_bootstrap_access(arguments),
            source=None if arguments.source is None else RebuildSource(arguments.source),
            tasks=run_locally if is_small else spark,  # Spark takes longer to start than a small table to rebuild
            storage_options=options,
            progress=bar.update,
            registry=parse_registry_argument(arguments),
        )
    if arguments.json:
        print_json({
            "topic": done.topic, "source": done.source.value, "rows": done.rows, "dead_letters": done.dead_letters,
            "version": done.version,
        })  # fmt: skip
    else:
        origin = "the topic" if done.source is RebuildSource.TOPIC else "its rows"
        print(
            f"{done.topic}: {pluralize(done.rows, 'row')} rebuilt from {origin},"
            f" {pluralize(done.dead_letters, 'new dead-letter record')}"
        )
    return EXIT_OK
