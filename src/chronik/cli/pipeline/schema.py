"""`chronik pipeline schema`: show, infer, check, compare and set the schemas of tables."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from chronik.cli.arguments import (
    add_client_arguments,
    add_debug_argument,
    add_json_argument,
    add_registry_argument,
    parse_bootstrap_access,
    parse_positive_int,
)
from chronik.cli.output import format_table, print_json
from chronik.cli.pipeline.registry_argument import parse_registry_argument
from chronik.cli.pipeline.table_location import S3_HELP, add_table_root_arguments, parse_storage_options
from chronik.wording import pluralize

if TYPE_CHECKING:
    from chronik.pipeline.maintenance.schemas import SchemaDifference, TopicSample
    from chronik.pipeline.tables.topic_table import TopicTable

EXIT_OK, EXIT_FAILED = 0, 1

SAMPLE_RECORDS = 10_000
DETECTABLE = ("timestamp", "date", "number")
SCHEMA_HELP = "TOML or JSON file, or columns such as 'id bigint, name string'"


def add_arguments(actions: Any) -> None:
    schema = actions.add_parser("schema", help="show, infer, check and set the schemas of tables")
    commands = schema.add_subparsers(metavar="ACTION", required=True)

    show = commands.add_parser("show", help="print the schema of a table")
    show.set_defaults(run=run_show)
    _add_table_arguments(show)
    show.add_argument("--version", type=parse_positive_int, metavar="N", help="an earlier version of the schema")
    show.add_argument("--toml", action="store_true", help="print the declared schema as TOML, for 'schema set'")
    add_json_argument(show)
    add_debug_argument(show)

    diff = commands.add_parser("diff", help="compare the schema of a table with another one")
    diff.set_defaults(run=run_diff)
    _add_table_arguments(diff)
    diff.add_argument("schema", metavar="SCHEMA", help=SCHEMA_HELP)
    add_json_argument(diff)
    add_debug_argument(diff)

    set_parser = commands.add_parser("set", help="declare the schema of a table")
    set_parser.set_defaults(run=run_set)
    _add_table_arguments(set_parser)
    set_parser.add_argument("schema", metavar="SCHEMA", help=SCHEMA_HELP)
    add_json_argument(set_parser)
    add_debug_argument(set_parser)

    infer = commands.add_parser("infer", help="print a schema that fits a sample of a topic, as TOML")
    add_client_arguments(infer, run_infer)
    add_registry_argument(infer)
    infer.add_argument("topic", metavar="TOPIC")
    infer.add_argument(
        "--detect",
        type=_parse_detected,
        default=(),
        metavar="A,B",
        help=f"also detect these types in strings: {', '.join(DETECTABLE)}",
    )
    _add_sample_argument(infer)
    add_json_argument(infer, help="print the schema as JSON")

    check = commands.add_parser("check", help="check how a sample of a topic fits a schema; exit code 1 if it does not")
    add_client_arguments(check, run_check)
    add_registry_argument(check)
    check.add_argument("topic", metavar="TOPIC")
    check.add_argument("schema", metavar="SCHEMA", help=SCHEMA_HELP)
    _add_sample_argument(check)
    add_json_argument(check)


def _add_table_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    add_table_root_arguments(parser, required=True, help=f"directory of the tables, {S3_HELP}")


def _add_sample_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sample",
        type=parse_positive_int,
        default=SAMPLE_RECORDS,
        metavar="N",
        help="maximum number of records to read (default: %(default)s)",
    )


def _parse_detected(text: str) -> tuple[str, ...]:
    names = tuple(name.strip().rstrip("s") for name in text.split(",") if name.strip())
    for name in names:
        if name not in DETECTABLE:
            raise argparse.ArgumentTypeError(f"{name!r}: expected {', '.join(DETECTABLE)}")
    return names


def _open_table(arguments: argparse.Namespace) -> TopicTable:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("deltalake", "pyarrow")
    from chronik.pipeline.tables.catalog import open_table
    from chronik.pipeline.tables.storage import table_uri, to_absolute_root

    root = to_absolute_root(arguments.table_root)
    return open_table(table_uri(root, arguments.topic), parse_storage_options(arguments))


# show


def run_show(arguments: argparse.Namespace) -> int:
    from chronik.errors import ConfigError
    from chronik.pipeline.maintenance.schemas import describe_column
    from chronik.pipeline.tables.layout import KEY_VALUE, is_system_column
    from chronik.pipeline.tables.values.schema_text import format_schema_toml
    from chronik.pipeline.tables.values.sql_types import format_sql_type, get_json_format
    from chronik.pipeline.tables.values.table_schema import build_schema_document
    from chronik.pipeline.tables.values.written_types import get_key_type

    table = _open_table(arguments)
    found = table.descriptor()
    schema, version = found.value_schema, found.schema_version
    if arguments.version is not None:
        versions = table.schema_versions()
        if arguments.version not in versions:
            known = ", ".join(map(str, versions)) or "none"
            raise ConfigError(
                f"topic {arguments.topic} has no version {arguments.version} of its schema; known: {known}"
            )
        schema, version = versions[arguments.version], arguments.version
    columns = schema.columns if arguments.version is not None else schema.resolve_columns(found.schema)
    declared = {column.name for column in schema.columns}
    if arguments.json:
        print_json({"version": version, **build_schema_document(schema), "table_columns": [
            {"name": column.name, "type": column.type_name, "declared": column.name in declared} for column in columns
        ]})  # fmt: skip
    elif arguments.toml:
        print(format_schema_toml(schema), end="")
    else:
        described = "inferred" if version == 0 else f"version {version}"
        format = f"{found.format.value} values; " if found.format.is_typed else ""
        format += f"{found.format.key} keys; " if found.format.has_decoded_keys else ""
        print(f"{arguments.topic}: {format}{described}; unknown fields: {schema.unknown_fields}; "
              f"invalid values: {schema.invalid_values}")  # fmt: skip
        origin = "writers" if found.format.is_typed else "inferred"
        rows = [
            (column.name, describe_column(column), "declared" if column.name in declared else origin)
            for column in columns
        ]
        if KEY_VALUE in found.schema.names and is_system_column(key := found.schema.field(KEY_VALUE)):
            rows.append((KEY_VALUE, format_sql_type(get_key_type(key), get_json_format(key)), "keys"))
        print(format_table(("COLUMN", "TYPE", "ORIGIN"), rows))
    return EXIT_OK


# diff and set


def run_diff(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.maintenance.schemas import compare_schemas
    from chronik.pipeline.tables.values.table_schema import read_schema

    found = _open_table(arguments).descriptor()
    differences = compare_schemas(found.value_schema, read_schema(arguments.schema), found.schema)
    if arguments.json:
        print_json([
            {"subject": each.subject, "before": each.before, "after": each.after, "needs_rebuild": each.needs_rebuild}
            for each in differences
        ])  # fmt: skip
    else:
        for each in differences:
            print(_format_difference(each))
        if not differences:
            print("no differences")
    return EXIT_OK


def _format_difference(difference: SchemaDifference) -> str:
    if difference.before is None:
        return f"+ {difference.subject}: {difference.after}"
    if difference.after is None:
        return f"- {difference.subject}: {difference.before} (the column stays in the table)"
    rebuild = " (needs a rebuild)" if difference.needs_rebuild else ""
    return f"~ {difference.subject}: {difference.before} -> {difference.after}{rebuild}"


def run_set(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.tables.values.table_schema import read_schema

    version = _open_table(arguments).set_schema(read_schema(arguments.schema))
    if arguments.json:
        print_json({"topic": arguments.topic, "version": version})
    else:
        print(f"{arguments.topic}: version {version} of the schema applies to records that land from now on")
    return EXIT_OK


# infer and check


def run_infer(arguments: argparse.Namespace) -> int:
    sample = _read_sample(arguments)
    from chronik.pipeline.maintenance.schemas import infer_schema
    from chronik.pipeline.tables.values.field_statistics import DetectedType
    from chronik.pipeline.tables.values.schema_text import format_schema_toml
    from chronik.pipeline.tables.values.table_schema import build_schema_document

    schema = infer_schema(sample, [DetectedType(name) for name in arguments.detect])
    if arguments.json:
        print_json(build_schema_document(schema))
        return EXIT_OK
    source = f"the {sample.format} schemas of " if sample.format.is_typed else ""
    print(f"# Inferred from {source}{pluralize(sample.count, 'record')} of topic {arguments.topic}.")
    print(format_schema_toml(schema), end="")
    return EXIT_OK


def run_check(arguments: argparse.Namespace) -> int:
    from chronik.pipeline.tables.values.table_schema import format_path, read_schema

    schema = read_schema(arguments.schema)
    sample = _read_sample(arguments)
    from chronik.pipeline.maintenance.schemas import check_values

    found = check_values(schema, sample)
    if arguments.json:
        print_json({
            "records": found.records, "dead_letters": found.dead_letters, "errors": found.errors,
            "misfits": found.misfits, "nulls": found.nulls, "rescued": found.rescued,
        })  # fmt: skip
    else:
        rows = [
            (column.name, column.type_name, f"{found.misfits.get(column.name, 0):,}", f"{found.nulls[column.name]:,}")
            for column in schema.columns
        ]
        print(format_table(("COLUMN", "TYPE", "MISFITS", "NULLS"), rows))
        print(f"{pluralize(found.records, 'record')}, {found.rescued:,} with rescued fields, "
              f"{pluralize(found.dead_letters, 'dead-letter record')}")  # fmt: skip
        for column in schema.columns:
            if found.records and found.nulls[column.name] == found.records:
                print(f"column {column.name}: no record has a value at {format_path(column.path)}", file=sys.stderr)
        for error in found.errors:
            print(f"dead-letter record: {error}", file=sys.stderr)
    return EXIT_OK if found.is_clean else EXIT_FAILED


def _read_sample(arguments: argparse.Namespace) -> TopicSample:
    from chronik.pipeline.spark.environment_checks import require_packages

    require_packages("deltalake", "pyarrow")
    from chronik.pipeline.maintenance.schemas import read_sample

    return read_sample(
        parse_bootstrap_access(arguments),
        arguments.topic,
        arguments.sample,
        parse_registry_argument(arguments),
        timeout_s=arguments.timeout,
    )
