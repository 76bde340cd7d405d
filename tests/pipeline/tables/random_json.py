"""Random table schemas and JSON records for them: most values fit their column, and some records are unusual."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from random import Random
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from chronik.pipeline.tables.layout import TableKind, initial_schema
from chronik.pipeline.tables.values.column_names import choose_column_name, with_json_key
from chronik.pipeline.tables.values.exact_json import NESTING_MAX, parse_exact_float
from chronik.pipeline.tables.values.sql_types import JSON_FORMAT, SqlType, get_json_format, parse_sql_type
from chronik.pipeline.tables.values.table_schema import (
    Column,
    InvalidValues,
    Path,
    TableSchema,
    UnknownFields,
    check_schema,
)

DECODED_TABLE: Final = initial_schema(TableKind.DECODED)

NOISE: Final = 0.02
"""Share of values that are replaced by arbitrary ones."""

KEYS: Final = ("id", "a", "B", "user", "first name", "a.b", "ä", "_offset", "", "x=y", "日本", "a`b", "{}")
ODD_KEYS: Final = (*KEYS, 'a"b', "a\\b", "a\nb", "\x00", "ID", "\U0001f600", "k" * 300)


class Number(NamedTuple):
    """A JSON number with its exact text."""

    text: str


@dataclass(frozen=True)
class Kind:
    """A column type, and a function that returns random JSON values that fit it."""

    sql_type: SqlType
    sample: Callable[[Random], Any]
    zone: str | None = None

    def sample_noisily(self, random: Random) -> Any:
        """Return a value that fits, or with a small probability null or an arbitrary value."""
        if random.random() < NOISE:
            return random_value(random)
        return None if random.random() < NOISE else self.sample(random)


def table_of(schema: TableSchema) -> pa.Schema:
    """Return the schema of an empty decoded table with the declared columns."""
    return pa.schema([*DECODED_TABLE, *(column.to_field() for column in schema.columns)])


# Kinds of columns


def random_kind(random: Random, depth: int = 2) -> Kind:
    if depth == 0 or random.random() < 0.65:
        return random.choice(SCALARS)(random)
    return random.choice((_list_kind, _map_kind, _struct_kind))(random, depth - 1)


def _list_kind(random: Random, depth: int) -> Kind:
    element = random_nested_kind(random, depth)
    data_type = pa.list_(element.sql_type.to_field("element"))
    return Kind(SqlType(data_type), lambda random: [element.sample_noisily(random) for _ in range(random.randrange(4))])


def _map_kind(random: Random, depth: int) -> Kind:
    value = random_nested_kind(random, depth)
    data_type = pa.map_(pa.field("key", pa.string(), nullable=False), value.sql_type.to_field("value"))
    return Kind(
        SqlType(data_type),
        lambda random: {random.choice(ODD_KEYS): value.sample_noisily(random) for _ in range(random.randrange(4))},
    )


def _struct_kind(random: Random, depth: int) -> Kind:
    kinds = {source: random_nested_kind(random, depth) for source in random.sample(KEYS, random.randint(1, 3))}
    fields: list[pa.Field] = []
    for source, kind in kinds.items():
        name = choose_column_name(source, [field.name for field in fields], frozenset())
        fields.append(with_json_key(kind.sql_type.to_field(name), source))

    def sample(random: Random) -> dict[str, Any]:
        found = {source: kind.sample_noisily(random) for source, kind in kinds.items() if random.random() < 0.9}
        if random.random() < NOISE:
            found[random.choice(ODD_KEYS)] = random_value(random)
        return found

    return Kind(SqlType(pa.struct(fields)), sample)


def random_nested_kind(random: Random, depth: int) -> Kind:
    """Return a kind without a time zone and a pattern, which only columns have."""
    kind = random_kind(random, depth)
    while kind.zone is not None or "%" in (kind.sql_type.format or ""):
        kind = random_kind(random, depth)
    return kind


def _scalar(sql_type: str, sample: Callable[[Random], Any], format: str | None = None, zone: str | None = None) -> Kind:
    kind = parse_sql_type(sql_type)
    return Kind(SqlType(kind.data_type, format or kind.format), sample, zone)


def _integer_kind(random: Random) -> Kind:
    name, bits = random.choice([("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64)])
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if random.random() < 0.2:
        return _scalar(name, lambda random: str(random_integer(random, low, high)), "string")
    return _scalar(name, lambda random: Number(str(random_integer(random, low, high))))


def random_integer(random: Random, low: int, high: int) -> int:
    return random.choice([low, high, 0, random.randint(low, high), random.randint(-9, 99)])


def _float_kind(random: Random) -> Kind:
    name, convert = random.choice([("double", random_double), ("float", random_single)])
    if random.random() < 0.2:
        return _scalar(name, convert, "string")
    return _scalar(name, lambda random: Number(convert(random)))


def random_double(random: Random) -> str:
    value = random.choice([random.uniform(-1e3, 1e3), random.gauss(0, 1) * 10 ** random.randint(-300, 300)])
    if random.random() < NOISE:
        return random.choice(LONG_NUMBERS)
    texts = [repr(value), f"{value:.17g}", f"{value:.3f}", str(random.randint(-(2**53), 2**53)), "-0.0", "1E5", "5.0"]
    return random.choice(texts).replace("e+", "e")


def random_single(random: Random) -> str:
    value = np.float32(random.gauss(0, 1) * 10 ** random.randint(-30, 30))
    return random.choice([str(value).replace("e+0", "e"), "0.1", "16777216", "2.50", "-1e3"])


def _decimal_kind(random: Random) -> Kind:
    precision = random.choice([1, 5, 18, 29, 38])
    scale = random.randint(0, precision)

    def sample(random: Random) -> str:
        digits = random.randint(0, 10 ** random.randint(0, precision) - 1)
        value = Decimal(random.choice(["", "-"]) + str(digits) + f"E-{scale}")
        return random.choice([f"{value:f}", f"{digits}e-{scale}", f"{value:f}" + ("0" * 45 if scale else "")])

    if random.random() < 0.3:
        return _scalar(f"decimal({precision},{scale})", sample, "string")
    return _scalar(f"decimal({precision},{scale})", lambda random: Number(sample(random)))


def _binary_kind(random: Random) -> Kind:
    if random.random() < 0.5:
        return _scalar("binary", lambda random: base64.b64encode(random.randbytes(random.randrange(9))).decode())

    def sample(random: Random) -> str:
        text = random.randbytes(random.randrange(9)).hex()
        return text.upper() if random.random() < 0.1 else text

    return _scalar("binary", sample, "hex")


def _date_kind(random: Random) -> Kind:
    def sample(random: Random) -> date:
        return random.choice([date.min, date.max, date.fromordinal(random.randint(1, date.max.toordinal()))])

    return random.choice(
        [
            _scalar("date", lambda random: sample(random).isoformat()),
            _scalar("date", lambda random: (sample(random) - date(1970, 1, 1)).days, "epoch_days"),
            _scalar("date", lambda random: f"{sample(random):%d.%m.}{sample(random).year:04d}", "%d.%m.%Y"),
        ]
    )


def random_datetime(random: Random) -> datetime:
    low, high = (1, 9999) if random.random() < 0.1 else (1890, 2100)
    start, end = datetime(low, 1, 1, tzinfo=UTC), datetime(high, 12, 31, tzinfo=UTC)
    moment = start + (end - start) * random.random()
    return moment.replace(microsecond=random.choice([0, 0, 1000 * random.randrange(1000), random.randrange(10**6)]))


def random_iso_text(random: Random) -> str:
    text = random_datetime(random).replace(tzinfo=None).isoformat()
    if random.random() < 0.1:
        return random.choice([text[:10], text[:16], text.replace("T", " "), text[:19] + ".000"])
    return text


def _timestamp_kind(random: Random) -> Kind:
    zone = random.choice([None, "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Casablanca"])

    def sample_absolute(random: Random) -> str:
        suffix = random.choice(["Z"] * 8 + ["", "+02:00", "-0930", "+00"])
        return random_iso_text(random) + suffix

    def sample_local(random: Random) -> str:
        moment = random_datetime(random)
        local = moment if zone is None or not 2 < moment.year < 9998 else moment.astimezone(ZoneInfo(zone))
        return f"{local:%d.%m.}{local.year:04d}{local: %H:%M:%S}"

    unit, name = random.choice([(1, "epoch_us"), (1000, "epoch_ms"), (1_000_000, "epoch_s")])
    sql_type = random.choice(["timestamp", "timestamp_ntz"])
    if sql_type == "timestamp_ntz":
        zone = None
    return random.choice(
        [
            _scalar("timestamp", sample_absolute if zone is None else random_iso_text, None, zone),
            _scalar("timestamp_ntz", random_iso_text),
            _scalar(sql_type, lambda random: Number(random_epoch_text(random, unit)), name),
            _scalar(sql_type, sample_local, "%d.%m.%Y %H:%M:%S", zone),
        ]
    )


def random_epoch_text(random: Random, unit_us: int) -> str:
    us = (random_datetime(random) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return random.choice([f"{Decimal(us) / unit_us:f}", str(us // unit_us), f"{us // unit_us}.0", "1e3"])


SCALARS: Final[tuple[Callable[[Random], Kind], ...]] = (
    lambda random: _scalar("boolean", lambda random: random.random() < 0.5),
    lambda random: _scalar("string", lambda random: random_text(random)),
    lambda random: _scalar("json", lambda random: random_value(random)),
    _integer_kind,
    _float_kind,
    _decimal_kind,
    _binary_kind,
    _date_kind,
    _timestamp_kind,
)


def random_default(random: Random, kind: Kind) -> Any:
    """Return a default for some of the columns of a few types, or None."""
    defaults: dict[SqlType, Any] = {SqlType(pa.bool_()): False, SqlType(pa.string()): "none", SqlType(pa.int64()): 7}
    return defaults.get(kind.sql_type) if random.random() < 0.5 else None


# Arbitrary values

LONG_NUMBERS: Final = (
    "123456789012345678901234567890", "0.1000000000000000000000001", "1e400", "-1e-400", "1e999999999", "1e-999999999",
    "1e-99999999999999999999999", "9007199254740993", "1.50000000000000000000000", "9" * 4299, "1" * 4400,
    "0." + "1" * 900, "-0", "-0.0", "1.0", "1E+2", "9223372036854775808", "12345678901234567.5", "1." + "0" * 50,
)  # fmt: skip


def random_text(random: Random) -> str:
    alphabet = random.choice(["abc", "0123456789", 'a"\\/\b\n\t{}[],:', "äß日\U0001f600\x7f\u2028"])
    return "".join(random.choice(alphabet) for _ in range(random.randrange(6)))


def random_value(random: Random, depth: int = 3) -> Any:
    """Return an arbitrary JSON value."""
    choice = random.randrange(8 if depth else 6)
    if choice == 6:
        return [random_value(random, depth - 1) for _ in range(random.randrange(4))]
    if choice == 7:
        return {random.choice(ODD_KEYS): random_value(random, depth - 1) for _ in range(random.randrange(4))}
    if choice == 5 and random.random() < 0.1:
        return nest_value(random.randint(5, 60))
    texts = ["2024-05-01", "true", "5", "2024-05-01T10:00:00Z", "QUJD"]
    leaves: tuple[Any, ...] = (
        None,
        random.random() < 0.5,
        Number(str(random_integer(random, -(2**40), 2**70))),
        Number(random.choice((random_double(random), random.choice(LONG_NUMBERS)))),
        random_text(random),
        random.choice(texts),
    )
    return leaves[choice]


def nest_value(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = {"a": value} if level % 2 else [value]
    return value


# Schemas and records

RESTORED_POLICIES: Final = (InvalidValues.RESCUE, InvalidValues.DEAD_LETTER)
"""Policies with which no value is lost."""


class RandomTable:
    """A random schema, and random records for it."""

    def __init__(self, random: Random, *, is_lossless: bool = True) -> None:
        """Create a schema. A lossless one has neither defaults nor a policy that drops or casts values."""
        self._random = random
        self._kinds: dict[Path, Kind] = {}
        policies = RESTORED_POLICIES if is_lossless else tuple(InvalidValues)
        columns: list[Column] = []
        for _ in range(random.randint(0, 7)):
            path = tuple(random.sample(KEYS, random.choice([1, 1, 1, 2, 3])))
            if any(path[: len(other)] == other or other[: len(path)] == path for other in self._kinds):
                continue
            kind = self._kinds[path] = random_kind(random)
            default = None if is_lossless else random_default(random, kind)
            columns.append(
                Column(
                    choose_column_name("_".join(path), [column.name for column in columns]),
                    kind.sql_type.data_type,
                    path,
                    kind.sql_type.format,
                    kind.zone,
                    required=default is None and random.random() < 0.1,
                    default=default,
                    invalid_values=random.choice([None, None, None, *policies]),
                )
            )
        unknown = [UnknownFields.COLUMN, UnknownFields.RESCUE] + ([] if is_lossless else [UnknownFields.DROP])
        policy = random.choices(policies, [6, 1, 3][: len(policies)])[0]
        self.schema = check_schema(TableSchema(tuple(columns), random.choice(unknown), policy))

    def random_batch(self, count: int) -> list[bytes | None]:
        return [self._random_record() for _ in range(count)]

    def _random_record(self) -> bytes | None:
        random = self._random
        if random.random() < 0.02:
            return None
        text = write_json(random, self._random_object())
        if random.random() < 0.02:
            return random.choice(make_invalid_values(text))
        return text

    def _random_object(self) -> dict[str, Any]:
        random = self._random
        record: dict[str, Any] = {}
        for path, kind in self._kinds.items():
            if random.random() < 0.9:
                _put(record, path, kind.sample_noisily(random))
        for path in self._kinds:
            if len(path) > 1 and random.random() < NOISE:
                _put(record, path[:-1], random.choice([{}, None, random_value(random), {"other": 1}]))
        if random.random() < 0.1:
            record[random.choice(ODD_KEYS)] = random_value(random)
        if random.random() < 0.05:
            record["new"] = random_value(random)
        if random.random() < NOISE and self._kinds:
            _put(record, (*random.choice(list(self._kinds))[:-1], "new"), random_value(random))
        keys = list(record)
        if random.random() < 0.1:
            random.shuffle(keys)
        return {key: record[key] for key in keys}


def _put(target: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        inner = target.get(key)
        if not isinstance(inner, dict):
            target[key] = inner = {}
        target = inner
    target[path[-1]] = value


def make_invalid_values(text: bytes) -> list[bytes]:
    """Return values that are not JSON objects, or are nested too deep."""
    deep = b"[" * NESTING_MAX + b"]" * NESTING_MAX
    return [
        b"", b" ", text[:-1], text + b"}", b"[" + text + b"]", b"null", b"1", b'"a"', b'{"a":"\xff"}',
        b'{"id":"\\ud800"}', b'{"user":NaN}', b'{"a":' + deep + b"}", b'{"a" 1}', b'{"new":"\xff"}', b'{"new":01}',
        b"\xef\xbb\xbf" + text,
    ]  # fmt: skip


def write_json(random: Random, value: Any) -> bytes:
    """Encode a value with random whitespace, escapes and duplicate keys, of which the last one counts."""
    is_compact = random.random() < 0.7
    return _write(random, value, is_compact).encode()


def _write(random: Random, value: Any, is_compact: bool) -> str:
    gap = "" if is_compact else random.choice(["", " ", "\n", "\t\r "])
    if isinstance(value, Number):
        return value.text
    if isinstance(value, dict):
        items = [_write_item(random, key, each, is_compact) for key, each in value.items()]
        if value and random.random() < NOISE / 2:
            items.insert(0, _write_item(random, random.choice(list(value)), random_value(random), is_compact))
        return "{" + gap + f"{gap},{gap}".join(items) + gap + "}"
    if isinstance(value, list):
        return "[" + gap + f"{gap},".join(_write(random, each, is_compact) for each in value) + "]"
    return json.dumps(value, ensure_ascii=random.random() < 0.2)


def _write_item(random: Random, key: str, value: Any, is_compact: bool) -> str:
    return _write(random, key, is_compact) + ("" if is_compact else " ") + ":" + _write(random, value, is_compact)


# Comparison


def canonical_json(text: str | bytes) -> Any:
    """Return a JSON value for comparison: without null fields, and with numbers that compare by value."""
    found = json.loads(
        text, parse_int=_canonical_number, parse_float=_canonical_number, parse_constant=_reject_constant
    )
    return _canonical_value(found)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _canonical_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_canonical_value(each) for each in value]
    if isinstance(value, dict):
        return {key: _canonical_value(each) for key, each in value.items() if each is not None}
    return f"boolean {value}" if isinstance(value, bool) else value  # Python's True equals 1


def _canonical_number(text: str) -> Any:
    exact = parse_exact_float(text)
    try:
        return Decimal(repr(exact)) if isinstance(exact, float) and math.isfinite(exact) else Decimal(text)
    except InvalidOperation:
        return Number(text)


def canonical_column(values: Sequence[Any], field: pa.Field) -> list[Any]:
    """Return the values of a column for comparison. JSON text is compared by value."""
    return [None if value is None else _canonical_cell(value, field) for value in values]


def _canonical_cell(value: Any, field: pa.Field) -> Any:
    if value is None:
        return None
    if get_json_format(field) == JSON_FORMAT:
        return canonical_json(f"[{value}]")
    if pa.types.is_list(field.type):
        return [_canonical_cell(each, field.type.value_field) for each in value]
    if pa.types.is_map(field.type):
        return [(key, _canonical_cell(each, field.type.item_field)) for key, each in value]
    if pa.types.is_struct(field.type):
        return {each.name: _canonical_cell(value[each.name], each) for each in field.type}
    return value
