"""`chronik pipeline repair`: choose the offsets at which landing continues after a table was rolled back."""

from __future__ import annotations

import argparse
from typing import Any

from chronik.cli.arguments import add_debug_argument, add_json_argument
from chronik.cli.output import print_json
from chronik.cli.pipeline.table_location import S3_HELP, add_table_root_arguments, parse_storage_options

EXIT_OK = 0
LAND_AGAIN, SKIP = "land-again", "skip"


def add_arguments(actions: Any) -> None:
    parser: argparse.ArgumentParser = actions.add_parser(
        "repair", help="choose where landing continues after another tool has rolled a table back"
    )
    parser.set_defaults(run=run_repair)
    parser.add_argument("topic", metavar="TABLE", help="the topic, or TOPIC~dead_letters")
    add_table_root_arguments(parser, required=True, help=f"directory of the tables, {S3_HELP}")
    parser.add_argument(
        "--removed-records",
        required=True,
        choices=(LAND_AGAIN, SKIP),
        help="land the records that the rollback removed again, or continue after them",
    )
    add_json_argument(parser)
    add_debug_argument(parser)


def run_repair(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("deltalake", "pyarrow")
    from chronik.pipeline.tables.catalog import open_table
    from chronik.pipeline.tables.storage import table_uri, to_absolute_root

    uri = table_uri(to_absolute_root(arguments.table_root), arguments.topic)
    table = open_table(uri, parse_storage_options(arguments))
    offsets = table.repair_offsets(lands_again=arguments.removed_records == LAND_AGAIN)
    if arguments.json:
        print_json({"table": arguments.topic, "next_offsets": {str(key): offsets[key] for key in sorted(offsets)}})
    else:
        listed = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(offsets.items()))
        print(f"{arguments.topic}: landing continues at {listed or 'the start of the topic'}")
    return EXIT_OK
