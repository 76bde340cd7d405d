"""Schema files: their type by suffix, and references to registered schemas."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from chronik.cli.arguments import InvalidInput
from chronik.client.registry import LATEST, RegistryAdminClient, SchemaVersion
from chronik.registry.entities import SchemaReference
from chronik.wording import format_spelling_suggestion

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
TYPE_BY_SUFFIX: Final = {".avsc": AVRO, ".json": JSON, ".proto": PROTOBUF}
SCHEMA_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum size of a schema file. Registries accept less, and say how much."""


def add_schema_file_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--type",
        type=str.upper,
        choices=(AVRO, JSON, PROTOBUF),
        metavar="TYPE",
        help="AVRO, JSON or PROTOBUF (default: by the suffix of the file: .avsc, .json or .proto)",
    )
    parser.add_argument(
        "--reference",
        action="append",
        default=[],
        metavar="NAME=SUBJECT[:VERSION]",
        help="a name in the schema and the version that it refers to, by default the latest; repeatable. The name is "
        "an Avro full name, a Protobuf import or a JSON Schema $ref",
    )
    parser.add_argument("--normalize", action="store_true", help="ignore differences that have no meaning")


def read_schema_file(arguments: argparse.Namespace, client: RegistryAdminClient) -> SchemaVersion:
    """Return the schema in the file of `add_schema_file_arguments` and `arguments.file`, without version and id.

    Raises:
        InvalidInput: The file cannot be read, its type is unknown, or a reference is invalid.
    """
    path = Path(arguments.file)
    schema_type = arguments.type or detect_type(path)
    references = [parse_reference(text, client) for text in arguments.reference]
    return SchemaVersion(arguments.subject, 0, 0, read_text(path), schema_type, references)


def detect_type(path: Path) -> str:
    """Return the schema type for the suffix of a file; raise InvalidInput if it is unknown."""
    if (found := TYPE_BY_SUFFIX.get(path.suffix.lower())) is None:
        raise InvalidInput(f"{path}: unknown suffix: use {', '.join(TYPE_BY_SUFFIX)}, or --type")
    return found


def read_text(path: Path) -> str:
    try:
        if path.stat().st_size > SCHEMA_BYTES_MAX:
            raise InvalidInput(f"{path}: larger than {SCHEMA_BYTES_MAX:,} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: not valid UTF-8") from None
    except OSError as error:
        raise InvalidInput(f"{path}: cannot read the schema: {error.strerror or error}") from None


def parse_reference(text: str, client: RegistryAdminClient) -> SchemaReference:
    """Parse NAME=SUBJECT[:VERSION]; without a version, return a reference to the latest one."""
    # Names of JSON Schema references are URIs that may contain "=", but subjects are not.
    name, equals, target = text.rpartition("=")
    if not name or not equals or not target:
        raise InvalidInput(f"--reference {text!r}: expected NAME=SUBJECT:VERSION")
    subject, colon, version = target.rpartition(":")
    if not colon or not subject or not (version.isdigit() or version == LATEST):
        subject, version = target, LATEST
    number = int(version) if version.isdigit() else client.get_version(subject, LATEST).version
    return SchemaReference(name, subject, number)


def parse_version(text: str) -> int | str:
    """Parse a version: a number, or `latest`."""
    if text == LATEST:
        return LATEST
    if not text.isdigit() or not 1 <= int(text) < 2**31:
        suggestion = format_spelling_suggestion(text, [LATEST])
        raise argparse.ArgumentTypeError(f"{text!r}: expected a version such as 1, or latest{suggestion}")
    return int(text)
