"""The layout of Avro values: for each type of a schema, how a column stores its values."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from chronik.formats.avro.schema import (
    DEPTH_MAX,
    Array,
    AvroRecord,
    AvroSchemaError,
    Fixed,
    Kind,
    LogicalType,
    Map,
    Type,
    Union,
    find_logical_type,
    iter_types,
    parse_schema,
    read_decimal,
)
from chronik.formats.codec import DECIMAL_PRECISION_MAX, UnsupportedSchemaError, WriterSchema


class Form(Enum):
    """The form in which a column stores the values of a type."""

    BOOLEAN = auto()
    INT = auto()
    LONG = auto()
    FLOAT = auto()
    DOUBLE = auto()
    BYTES = auto()
    STRING = auto()
    FIXED = auto()
    ENUM = auto()
    LIST = auto()
    MAP = auto()
    STRUCT = auto()
    OPTIONAL = auto()
    """A union of null and one other type, or of one type."""
    DECIMAL = auto()
    UUID = auto()
    """A UUID in 16 bytes, stored as text. One that Avro stores as a string is a `STRING`."""
    DURATION = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    NANOSECOND_TIMESTAMP = auto()
    JSON_TEXT = auto()
    """A type that no column type represents: a union of several types, a type within itself, a record without fields,
    null, or a decimal with a high precision."""


TIME_UNITS_NS: Final = {
    LogicalType.TIME_MILLIS: 1_000_000,
    LogicalType.TIME_MICROS: 1000,
}
TIMESTAMP_UNITS_NS: Final = {
    LogicalType.TIMESTAMP_MILLIS: 1_000_000,
    LogicalType.TIMESTAMP_MICROS: 1000,
    LogicalType.TIMESTAMP_NANOS: 1,
    LogicalType.LOCAL_TIMESTAMP_MILLIS: 1_000_000,
    LogicalType.LOCAL_TIMESTAMP_MICROS: 1000,
    LogicalType.LOCAL_TIMESTAMP_NANOS: 1,
}
UTC_TIMESTAMPS: Final = frozenset(
    (LogicalType.TIMESTAMP_MILLIS, LogicalType.TIMESTAMP_MICROS, LogicalType.TIMESTAMP_NANOS)
)

_PRIMITIVE_FORMS: Final = {
    Kind.BOOLEAN: Form.BOOLEAN,
    Kind.INT: Form.INT,
    Kind.LONG: Form.LONG,
    Kind.FLOAT: Form.FLOAT,
    Kind.DOUBLE: Form.DOUBLE,
    Kind.BYTES: Form.BYTES,
    Kind.STRING: Form.STRING,
    Kind.FIXED: Form.FIXED,
    Kind.ENUM: Form.ENUM,
    Kind.NULL: Form.JSON_TEXT,
}

_SLOT_BYTES: Final = {
    Form.BOOLEAN: 1,
    Form.LONG: 8,
    Form.DOUBLE: 8,
    Form.TIMESTAMP: 8,
    Form.DECIMAL: 16,
    Form.DURATION: 24,
    Form.TIME: 4 + len("08:30:00.000001"),
    Form.NANOSECOND_TIMESTAMP: 4 + len("2026-11-19T08:30:00.000000001Z"),
    Form.UUID: 4 + 36,
}
"""The bytes that a column takes per value, whether it is null or not; 4 for other forms. The bytes of strings, which
are part of the payload, do not count, nor do those of enum symbols and JSON text, which are counted themselves."""


class Layout:
    """How a column stores the values of a type."""

    __slots__ = ("branch", "children", "form", "logical_type", "null_branch", "size", "slot_bytes", "type")

    def __init__(self, type_: Type, form: Form, children: tuple[Layout, ...] = ()) -> None:
        self.type: Any = type_
        self.form = form
        self.children = children
        """The layouts of the fields, items, values or branch."""
        self.logical_type = None if form is Form.JSON_TEXT else find_logical_type(type_)
        self.branch = 0
        """The index of the branch that is not null, if the form is `OPTIONAL`."""
        self.null_branch: int | None = None
        self.size: int = 1 + sum(child.size for child in children)
        """The number of columns, including nested ones. A type that is used several times counts each time."""
        is_flat = form in (Form.STRUCT, Form.OPTIONAL)
        self.slot_bytes: int = sum(child.slot_bytes for child in children) if is_flat else _SLOT_BYTES.get(form, 4)
        """The minimum bytes that a column takes per value. The fields of a struct take them even if it is null."""

    @property
    def unit_ns(self) -> int:
        """The nanoseconds per unit of a time or timestamp."""
        assert self.logical_type is not None
        return TIME_UNITS_NS.get(self.logical_type) or TIMESTAMP_UNITS_NS[self.logical_type]

    @property
    def is_utc(self) -> bool:
        """Whether a timestamp is an instant, as opposed to a local time."""
        return self.logical_type in UTC_TIMESTAMPS

    @property
    def precision_and_scale(self) -> tuple[int, int]:
        """The precision and scale of a decimal."""
        return read_decimal(self.type)


def select_form(type_: Type) -> Form:
    """Return the form of a type that consists of no other types."""
    logical_type = find_logical_type(type_)
    match logical_type:
        case LogicalType.DECIMAL:
            return Form.DECIMAL if read_decimal(type_)[0] <= DECIMAL_PRECISION_MAX else Form.JSON_TEXT
        case LogicalType.UUID:
            return Form.STRING if type_.kind is Kind.STRING else Form.UUID
        case LogicalType.DURATION:
            return Form.DURATION
        case LogicalType.DATE:
            return Form.DATE
        case LogicalType.TIME_MILLIS | LogicalType.TIME_MICROS:
            return Form.TIME
        case LogicalType.TIMESTAMP_NANOS | LogicalType.LOCAL_TIMESTAMP_NANOS:
            return Form.NANOSECOND_TIMESTAMP
        case None | LogicalType.BIG_DECIMAL:
            return _PRIMITIVE_FORMS[type_.kind]
        case _:
            return Form.TIMESTAMP


def parse_writer_schema(schema: WriterSchema) -> tuple[Type, list[Type]]:
    """Parse a schema. Return its type, and the types of its references.

    Raises:
        UnsupportedSchemaError: The schema is invalid.
    """
    try:
        return parse_schema(schema.text, [reference.text for reference in schema.references], is_new=False)
    except AvroSchemaError as error:
        raise UnsupportedSchemaError(f"invalid Avro schema: {error}") from None


def plan_layout(root: Type, references: list[Type]) -> Layout:
    """Plan how columns store the values of a schema. Each named type has the same layout wherever it is used.

    Raises:
        UnsupportedSchemaError: The schema is nested too deeply.
    """
    planner = _Planner()
    for reference in references:
        planner.plan(reference)
    return planner.plan(root)


class _Planner:
    """A planner of layouts, which may share named types."""

    def __init__(self) -> None:
        self._records: dict[int, Layout | None] = {}
        """The layouts of records by id, or None while they are planned."""
        self._depth = 0

    def plan(self, type_: Type) -> Layout:
        """Return the layout of a type."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise UnsupportedSchemaError(f"the Avro schema is nested more than {DEPTH_MAX} levels deep")
        try:
            return self._plan(type_)
        finally:
            self._depth -= 1

    def _plan(self, type_: Type) -> Layout:
        if isinstance(type_, AvroRecord):
            return self._plan_record(type_)
        if isinstance(type_, Union):
            return self._plan_union(type_)
        if isinstance(type_, Array):
            return Layout(type_, Form.LIST, (self.plan(type_.items),))
        if isinstance(type_, Map):
            return Layout(type_, Form.MAP, (self.plan(type_.values),))
        return Layout(type_, select_form(type_))

    def _plan_record(self, record: AvroRecord) -> Layout:
        if id(record) in self._records:
            return self._records[id(record)] or Layout(record, Form.JSON_TEXT)
        self._records[id(record)] = None
        children = tuple(self.plan(field.type) for field in record.fields)
        layout = Layout(record, Form.STRUCT if children else Form.JSON_TEXT, children)
        self._records[id(record)] = layout
        return layout

    def _plan_union(self, union: Union) -> Layout:
        others = [index for index, branch in enumerate(union.branches) if branch.kind is not Kind.NULL]
        if len(others) != 1:
            return Layout(union, Form.JSON_TEXT)
        layout = Layout(union, Form.OPTIONAL, (self.plan(union.branches[others[0]]),))
        layout.branch = others[0]
        if len(union.branches) > 1:
            layout.null_branch = 1 - layout.branch
        return layout


def has_empty_values(root: Type) -> bool:
    """Return whether values of a type may contain values that are encoded as no bytes."""
    for type_ in iter_types(root):
        if isinstance(type_, Fixed) and type_.size == 0:
            return True
        if isinstance(type_, AvroRecord) and not type_.fields:
            return True
        if not isinstance(type_, Union) and any(child.kind is Kind.NULL for child in type_.children()):
            return True
    return root.kind is Kind.NULL
