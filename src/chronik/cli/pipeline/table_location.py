"""Arguments for the location of tables: a directory or an S3 prefix, and the options of the object store."""

from __future__ import annotations

import argparse
import re

from chronik.cli.arguments import InvalidInput, parse_key_values

CATALOG_OPTION = "iceberg_catalog"
"""Storage option with the URL of the Iceberg catalog: `storage_options.ICEBERG_CATALOG`, which takes long to import."""

S3_HELP = "or s3://BUCKET/PREFIX"

OPTION = re.compile(r"[\w.-]+=")


def add_table_root_arguments(
    parser: argparse.ArgumentParser, *, help: str, required: bool = False, default: str | None = None
) -> None:
    """Add `--table-root` and `--storage-option`, which every command that reads or writes tables accepts."""
    parser.add_argument("--table-root", metavar="DIR", required=required, default=default, help=help)
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the object store, such as aws_region=eu-west-1; also AWS_… variables and profiles (repeatable)",
    )
    parser.add_argument(
        "--catalog",
        metavar="URL",
        help="Iceberg catalog: http(s):// (REST), sqlite:/// or postgresql://; also CHRONIK_ICEBERG_CATALOG"
        " (default: a SQLite database in a local table root)",
    )


def parse_storage_options(arguments: argparse.Namespace) -> dict[str, str] | None:
    """Return the storage options, with the URL of the Iceberg catalog.

    Raises:
        InvalidInput: An option is not `NAME=VALUE`. The message shows only the name, because the value may be a secret.
    """
    for text in arguments.storage_option:
        if not OPTION.match(text):
            name = re.match(r"\w*", text)[0]  # type: ignore[index] # matches every text
            raise InvalidInput(f"--storage-option {name}…: expected NAME=VALUE")
    options = parse_key_values(arguments.storage_option, "--storage-option")
    if arguments.catalog:
        options[CATALOG_OPTION] = arguments.catalog
    return options or None
