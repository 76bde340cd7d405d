"""ACLs as CSV, with the columns of Kafbat UI and kafka-security-manager."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from enum import IntEnum
from http import HTTPStatus
from typing import Final, NamedTuple

from chronik.client.security import AclBinding
from chronik.console.rest.errors import RestError
from chronik.console.rest.models.security import InvalidAcl
from chronik.console.rest.operations.csv_cells import disable_formula, restore_formula
from chronik.limits import ACLS_PER_REQUEST_MAX
from chronik.metadata.records import Acl
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.security.acls import AclPermission, PatternType, find_acl_error

COLUMNS: Final = ("Principal", "ResourceType", "PatternType", "ResourceName", "Operation", "PermissionType", "Host")
_HEADERS: Final = frozenset((first, *map(str.lower, COLUMNS[1:])) for first in ("principal", "kafkaprincipal"))
_QUOTED_CHARACTERS: Final = frozenset(',"\r\n')


class ParsedAcls(NamedTuple):
    """The ACLs of a CSV file, without duplicates."""

    acls: list[AclBinding]
    invalid: list[InvalidAcl]


def format_acls(acls: Iterable[AclBinding]) -> bytes:
    """Return a CSV file with a header."""
    lines = [",".join(COLUMNS)]
    for acl in acls:
        cells = (
            acl.principal,
            AclResourceType(acl.resource_type).name,
            PatternType(acl.pattern_type).name,
            acl.name,
            AclOperation(acl.operation).name,
            AclPermission(acl.permission).name,
            acl.host,
        )
        lines.append(",".join(map(_format_cell, cells)))
    return "".join(f"{line}\r\n" for line in lines).encode()


def _format_cell(text: str) -> str:
    """Return a cell that is quoted only if necessary, because Kafbat UI does not understand quotes."""
    text = disable_formula(text)
    if _QUOTED_CHARACTERS.isdisjoint(text) and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def parse_acls(text: str) -> ParsedAcls:
    """Parse a CSV file. Its header is optional.

    Raises:
        RestError: The file has too many lines.
    """
    acls: dict[AclBinding, None] = {}
    invalid: list[InvalidAcl] = []
    for count, (line, cells) in enumerate(_iter_rows(text.removeprefix("\ufeff"))):
        if count == 0 and tuple(each.strip().lower() for each in cells) in _HEADERS:
            continue
        if count > ACLS_PER_REQUEST_MAX:
            message = f"the file has more than {ACLS_PER_REQUEST_MAX:,} ACLs: split it"
            raise RestError(HTTPStatus.BAD_REQUEST, message)
        try:
            acls[_parse_row(cells)] = None
        except ValueError as error:
            invalid.append(InvalidAcl(line, str(error)))
    return ParsedAcls(list(acls), invalid)


def _iter_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line of each row that is not blank, and its cells; none if it is malformed."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            cells = [""]
        else:
            if not cells:
                continue
        yield line, cells


def _parse_row(cells: list[str]) -> AclBinding:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"expected {len(COLUMNS)} cells: {', '.join(COLUMNS)}")
    principal, resource_type, pattern, name, operation, permission, host = cells
    acl = AclBinding(
        _parse_enum(AclResourceType, "ResourceType", resource_type),
        restore_formula(name),
        _parse_enum(PatternType, "PatternType", pattern),
        restore_formula(principal),
        restore_formula(host),
        _parse_enum(AclOperation, "Operation", operation),
        _parse_enum(AclPermission, "PermissionType", permission),
    )
    if (error := find_acl_error(Acl(*acl))) is not None:
        raise ValueError(error)
    return acl


def _parse_enum(values: type[IntEnum], column: str, text: str) -> int:
    number = _NUMBERS[values].get(_normalize(text))
    if number is None:
        expected = ", ".join(each.name for each in values)
        raise ValueError(f"{column}: expected one of {expected}")
    return number


def _normalize(text: str) -> str:
    return text.strip().replace("_", "").replace("-", "").lower()


_NUMBERS: Final[dict[type[IntEnum], dict[str, int]]] = {
    values: {_normalize(each.name): int(each) for each in values}
    for values in (AclResourceType, PatternType, AclOperation, AclPermission)
}
