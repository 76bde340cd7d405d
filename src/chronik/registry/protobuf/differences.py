"""The differences between two Protobuf schemas, with the types and compatibility rules of Confluent's registry.

Fields are compared by number. Types are compared by name; the types of fields in other files are compared, too, where
a field uses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from chronik.formats.protobuf.names import ROOT, NameIndex, TypeInfo, is_map_entry, join_names
from chronik.formats.protobuf.syntax import (
    SCALAR_TYPES,
    Message,
    Oneof,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoSyntaxError,
    iter_fields,
    iter_types,
    split_map_type,
)

DIFFERENCES_MAX: Final = 1000
"""Maximum number of differences that a comparison returns. Comparing stops there: the schemas are incompatible."""

STEPS_MAX: Final = 500_000
"""Maximum number of fields, types and enum values that a comparison visits, each of which takes about 2 µs."""

DEPTH_MAX: Final = 100
"""Maximum length of a chain of types in other files, each of which has a field of the next type."""


class DifferenceType(StrEnum):
    """What differs between a schema and its update, by Confluent's names."""

    PACKAGE_CHANGED = "PACKAGE_CHANGED"
    MESSAGE_ADDED = "MESSAGE_ADDED"
    MESSAGE_REMOVED = "MESSAGE_REMOVED"
    MESSAGE_MOVED = "MESSAGE_MOVED"
    ENUM_ADDED = "ENUM_ADDED"
    ENUM_REMOVED = "ENUM_REMOVED"
    ENUM_CONST_ADDED = "ENUM_CONST_ADDED"
    ENUM_CONST_CHANGED = "ENUM_CONST_CHANGED"
    ENUM_CONST_REMOVED = "ENUM_CONST_REMOVED"
    FIELD_ADDED = "FIELD_ADDED"
    FIELD_REMOVED = "FIELD_REMOVED"
    FIELD_NAME_CHANGED = "FIELD_NAME_CHANGED"
    FIELD_KIND_CHANGED = "FIELD_KIND_CHANGED"
    FIELD_SCALAR_KIND_CHANGED = "FIELD_SCALAR_KIND_CHANGED"
    FIELD_NAMED_TYPE_CHANGED = "FIELD_NAMED_TYPE_CHANGED"
    FIELD_NUMERIC_LABEL_CHANGED = "FIELD_NUMERIC_LABEL_CHANGED"
    FIELD_STRING_OR_BYTES_LABEL_CHANGED = "FIELD_STRING_OR_BYTES_LABEL_CHANGED"
    REQUIRED_FIELD_ADDED = "REQUIRED_FIELD_ADDED"
    REQUIRED_FIELD_REMOVED = "REQUIRED_FIELD_REMOVED"
    ONEOF_ADDED = "ONEOF_ADDED"
    ONEOF_REMOVED = "ONEOF_REMOVED"
    ONEOF_FIELD_ADDED = "ONEOF_FIELD_ADDED"
    ONEOF_FIELD_REMOVED = "ONEOF_FIELD_REMOVED"
    ONEOF_FIELD_MOVED_TO_TOP_LEVEL = "ONEOF_FIELD_MOVED_TO_TOP_LEVEL"
    MULTIPLE_FIELDS_MOVED_TO_ONEOF = "MULTIPLE_FIELDS_MOVED_TO_ONEOF"
    FIELD_MOVED_TO_EXISTING_ONEOF = "FIELD_MOVED_TO_EXISTING_ONEOF"


_D: Final = DifferenceType

INCOMPATIBLE: Final[Mapping[DifferenceType, str]] = {
    _D.PACKAGE_CHANGED: "The package at '{path}' in the %s schema does not match the package in the %s schema",
    _D.MESSAGE_REMOVED: "The %s schema is missing a MESSAGE type at path '{path}' in the %s schema",
    _D.FIELD_KIND_CHANGED: "The type of a field at path '{path}' in the %s schema does not match the %s schema",
    _D.FIELD_SCALAR_KIND_CHANGED: (
        "The kind of a SCALAR field at path '{path}' in the %s schema does not match its kind in the %s schema"
    ),
    _D.FIELD_NAMED_TYPE_CHANGED: (
        "The type of a MESSAGE field at path '{path}' in the %s schema does not match its type in the %s schema"
    ),
    _D.FIELD_NUMERIC_LABEL_CHANGED: (
        "The label for a NUMERIC field at path '{path}' in the %s schema does not match its label in the %s schema"
    ),
    _D.REQUIRED_FIELD_ADDED: "A required field  at path '{path}' in the %s schema is missing in the %s schema",
    _D.REQUIRED_FIELD_REMOVED: "The %s schema is missing a required field at path: '{path}' in the %s schema",
    _D.ONEOF_FIELD_REMOVED: "The %s schema is missing a oneof field at path '{path}' in the %s schema",
    _D.MULTIPLE_FIELDS_MOVED_TO_ONEOF: (
        "Multiple fields in the oneof at path '{path}' in the %s schema are outside a oneof in the %s schema"
    ),
    _D.FIELD_MOVED_TO_EXISTING_ONEOF: (
        "A field in the oneof at path '{path}' in the %s schema is outside an existing oneof in the %s schema"
    ),
}
"""The differences that break readers, with Confluent's messages. All others are compatible."""


class Difference(NamedTuple):
    """A difference, and where it is: a path of names and field numbers such as `#/Order/3`."""

    type: DifferenceType
    path: str

    @property
    def is_compatible(self) -> bool:
        return self.type not in INCOMPATIBLE

    @property
    def message(self) -> str:
        """Confluent's message. Its two `%s` stand for the reader's and the writer's schema (`new` or `old`)."""
        description = INCOMPATIBLE.get(self.type, "").replace("{path}", self.path.replace("%", "%%"))
        return f'{{errorType:"{self.type}", description:"{description}"}}'


class SchemaFiles(NamedTuple):
    """A schema to compare: its file, and the types that it can refer to."""

    file: ProtoFile
    names: NameIndex


def find_differences(original: SchemaFiles, update: SchemaFiles) -> list[Difference]:
    """Return the differences between a writer's schema and an update of it, which reads its data.

    Raises:
        ProtoSyntaxError: The schemas are too complex to compare.
    """
    comparison = _Comparison(original.names, update.names)
    packages = _get_package(original.file), _get_package(update.file)
    comparison.compare_files(original.file, update.file, packages)
    return comparison.differences


class _TooManyDifferences(Exception):
    pass


class _Scope(NamedTuple):
    """The place at which both schemas are compared."""

    path: tuple[str, ...]
    local_name: str
    """Name within the packages, such as `Outer.Inner`. Only types of equal names are compared."""
    packages: tuple[str, str]

    def enter(self, *names: str) -> _Scope:
        return self._replace(path=(*self.path, *names))

    def enter_type(self, name: str) -> _Scope:
        return _Scope((*self.path, name), join_names(self.local_name, name), self.packages)

    def qualify(self, side: int) -> str:
        return join_names(self.packages[side], self.local_name) if self.local_name else self.packages[side]


class _Comparison:
    def __init__(self, original: NameIndex, update: NameIndex) -> None:
        self._indexes = (original, update)
        self.differences: list[Difference] = []
        self._compared: dict[tuple[str, str], bool] = {}
        """Whether types of other files are compatible, by their full names. Assumed to be while they are compared."""
        self._steps_left = STEPS_MAX
        self._depth = 0

    def compare_files(self, original: ProtoFile, update: ProtoFile, packages: tuple[str, str]) -> None:
        scope = _Scope((), "", packages)
        try:
            if original.package != update.package:
                self._add(_D.PACKAGE_CHANGED, scope)
            self._compare_types(original.types, update.types, scope)
        except _TooManyDifferences:
            pass

    def _take(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise ProtoSyntaxError("The schemas are too complex to compare")

    def _add(self, type_: DifferenceType, scope: _Scope) -> None:
        # Compatible differences are kept within the limit only, so that incompatible ones are not lost.
        difference = Difference(type_, "#/" + "/".join(scope.path))
        if len(self.differences) < DIFFERENCES_MAX or not difference.is_compatible:
            self.differences.append(difference)
        if not difference.is_compatible and len(self.differences) > DIFFERENCES_MAX:
            raise _TooManyDifferences

    # Types

    def _compare_types(
        self, original: Sequence[Message | ProtoEnum], update: Sequence[Message | ProtoEnum], scope: _Scope
    ) -> None:
        self._take(len(original) + len(update))
        original_messages = [message for message in original if isinstance(message, Message)]
        update_messages = [message for message in update if isinstance(message, Message)]
        positions = {message.name: position for position, message in enumerate(update_messages)}
        for position, message in enumerate(original_messages):
            inner = scope.enter_type(message.name)
            update_position = positions.get(message.name)
            if update_position is None:
                if not is_map_entry(message):
                    self._add(_D.MESSAGE_REMOVED, inner)
                continue
            self._compare_messages(message, update_messages[update_position], inner)
            if position != update_position:
                self._add(_D.MESSAGE_MOVED, inner)
        names = {message.name for message in original_messages}
        for message in update_messages:
            if message.name not in names and not is_map_entry(message):
                self._add(_D.MESSAGE_ADDED, scope.enter_type(message.name))
        original_enums = {enum.name: enum for enum in original if isinstance(enum, ProtoEnum)}
        update_enums = {enum.name: enum for enum in update if isinstance(enum, ProtoEnum)}
        for name in original_enums | update_enums:
            inner = scope.enter_type(name)
            if name not in update_enums:
                self._add(_D.ENUM_REMOVED, inner)
            elif name not in original_enums:
                self._add(_D.ENUM_ADDED, inner)
            else:
                self._compare_enums(original_enums[name], update_enums[name], inner)

    def _compare_enums(self, original: ProtoEnum, update: ProtoEnum, scope: _Scope) -> None:
        self._take(len(original.values) + len(update.values))
        original_names = {value.number: value.name for value in original.values}
        update_names = {value.number: value.name for value in update.values}
        for number in original_names | update_names:
            inner = scope.enter(str(number))
            if number not in update_names:
                self._add(_D.ENUM_CONST_REMOVED, inner)
            elif number not in original_names:
                self._add(_D.ENUM_CONST_ADDED, inner)
            elif original_names[number] != update_names[number]:
                self._add(_D.ENUM_CONST_CHANGED, inner)

    # Messages

    def _compare_messages(self, original: Message, update: Message, scope: _Scope) -> None:
        original_fields = {field.number: (field, oneof) for field, oneof in iter_fields(original)}
        update_fields = {field.number: (field, oneof) for field, oneof in iter_fields(update)}
        self._take(len(original_fields) + len(update_fields))
        self._compare_oneofs(original, update, original_fields, scope)
        update_oneofs = {oneof.name for oneof in update.oneofs}
        # Removing a whole oneof is compatible, unless one of its fields is now elsewhere.
        removed_oneofs = {
            oneof.name
            for oneof in original.oneofs
            if oneof.name not in update_oneofs and all(field.number not in update_fields for field in oneof.fields)
        }
        for number in sorted(original_fields | update_fields):
            original_field, original_oneof = original_fields.get(number, (None, None))
            update_field, update_oneof = update_fields.get(number, (None, None))
            names = () if update_oneof is None else (update_oneof.name,)
            inner = scope.enter(*names, str(number))
            if update_field is None:
                assert original_field is not None
                if original_oneof is None:
                    is_required = original_field.label == "required"
                    self._add(_D.REQUIRED_FIELD_REMOVED if is_required else _D.FIELD_REMOVED, inner)
                elif original_oneof.name not in removed_oneofs:
                    self._add(_D.ONEOF_FIELD_REMOVED, scope.enter(original_oneof.name, str(number)))
            elif original_field is None:
                if update_oneof is not None:
                    self._add(_D.ONEOF_FIELD_ADDED, inner)
                else:
                    is_required = update_field.label == "required"
                    self._add(_D.REQUIRED_FIELD_ADDED if is_required else _D.FIELD_ADDED, inner)
            else:
                if original_oneof is not None and update_oneof is None:
                    self._add(_D.ONEOF_FIELD_MOVED_TO_TOP_LEVEL, inner)
                self._compare_fields(original_field, update_field, inner)
        self._compare_types(list(iter_types(original)), list(iter_types(update)), scope)

    def _compare_oneofs(
        self,
        original: Message,
        update: Message,
        original_fields: Mapping[int, tuple[ProtoField, Oneof | None]],
        scope: _Scope,
    ) -> None:
        # Fields that could be set together before exclude each other if they are now in one oneof.
        for oneof in update.oneofs:
            origins: set[str | int] = set()
            moved = 0
            for field in oneof.fields:
                if field.number in original_fields:
                    _, origin = original_fields[field.number]
                    origins.add(field.number if origin is None else origin.name)
                    moved += origin is None
            if len(origins) > 1:
                multiple = moved > 1
                type_ = _D.MULTIPLE_FIELDS_MOVED_TO_ONEOF if multiple else _D.FIELD_MOVED_TO_EXISTING_ONEOF
                self._add(type_, scope.enter(oneof.name))
        original_names = {oneof.name for oneof in original.oneofs}
        update_names = {oneof.name for oneof in update.oneofs}
        for name in sorted(original_names ^ update_names):
            self._add(_D.ONEOF_ADDED if name in update_names else _D.ONEOF_REMOVED, scope.enter(name))

    # Fields

    def _compare_fields(self, original: ProtoField, update: ProtoField, scope: _Scope) -> None:
        if original.name != update.name:
            self._add(_D.FIELD_NAME_CHANGED, scope)
        if (original.group is None) != (update.group is None):
            self._add(_D.FIELD_KIND_CHANGED, scope)  # groups have another wire type than messages
            return
        self._compare_field_types((original.label, update.label), (original.type, update.type), scope)

    def _compare_field_types(
        self, labels: tuple[str | None, str | None], types: tuple[str, str], scope: _Scope
    ) -> None:
        infos = self._find(types[0], scope, 0), self._find(types[1], scope, 1)
        maps = self._get_map_types(types[0], infos[0], 0), self._get_map_types(types[1], infos[1], 1)
        kinds = _find_kind(types[0], infos[0], maps[0]), _find_kind(types[1], infos[1], maps[1])
        if kinds[0] != kinds[1]:
            self._add(_D.FIELD_KIND_CHANGED, scope)
        elif maps[0] is not None and maps[1] is not None:
            for key_or_value in (0, 1):
                self._compare_field_types((None, None), (maps[0][key_or_value], maps[1][key_or_value]), scope)
        elif kinds[0] == "scalar":
            self._compare_scalars(labels, (_find_scalar_kind(types[0]), _find_scalar_kind(types[1])), scope)
        else:
            self._compare_message_types(types, infos, scope)

    def _compare_scalars(self, labels: tuple[str | None, str | None], kinds: tuple[str, str], scope: _Scope) -> None:
        if kinds[0] != kinds[1]:
            self._add(_D.FIELD_SCALAR_KIND_CHANGED, scope)
        elif None not in labels and labels[0] != labels[1]:
            is_string = kinds[0] == "string"
            self._add(_D.FIELD_STRING_OR_BYTES_LABEL_CHANGED if is_string else _D.FIELD_NUMERIC_LABEL_CHANGED, scope)

    def _compare_message_types(
        self, types: tuple[str, str], infos: tuple[TypeInfo | None, TypeInfo | None], scope: _Scope
    ) -> None:
        original, update = infos
        if original is None or update is None:
            if types[0] != types[1]:
                self._add(_D.FIELD_NAMED_TYPE_CHANGED, scope)
            return
        if original.local_name != update.local_name:
            self._add(_D.FIELD_NAMED_TYPE_CHANGED, scope)
            return
        if original.path == ROOT and update.path == ROOT:
            return  # compared with its file
        assert isinstance(original.declaration, Message)
        assert isinstance(update.declaration, Message)
        key = (original.full_name, update.full_name)
        if key not in self._compared:
            self._compared[key] = True
            before = len(self.differences)
            packages = (original.package, update.package)
            inner = _Scope(tuple(original.local_name.split(".")), original.local_name, packages)
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise ProtoSyntaxError("The schemas are too complex to compare: a chain of types is too long")
            self._compare_messages(original.declaration, update.declaration, inner)
            self._depth -= 1
            self._compared[key] = all(difference.is_compatible for difference in self.differences[before:])
        if not self._compared[key]:
            self._add(_D.FIELD_NAMED_TYPE_CHANGED, scope)

    def _find(self, type_name: str, scope: _Scope, side: int) -> TypeInfo | None:
        if type_name in SCALAR_TYPES or type_name.startswith("map<"):
            return None
        return self._indexes[side].find_type(type_name, scope.qualify(side))

    def _get_map_types(self, type_name: str, info: TypeInfo | None, side: int) -> tuple[str, str] | None:
        if info is None or not isinstance(info.declaration, Message) or not is_map_entry(info.declaration):
            return split_map_type(type_name)
        index = self._indexes[side]
        key, value = index.find_field(info, "key"), index.find_field(info, "value")
        return (key.type, value.type) if key is not None and value is not None else None


def _get_package(file: ProtoFile) -> str:
    return (file.package or "").removeprefix(".")


def _find_kind(type_name: str, info: TypeInfo | None, map_types: tuple[str, str] | None) -> str:
    if map_types is not None:
        return "map"
    is_enum = info is not None and isinstance(info.declaration, ProtoEnum)
    return "scalar" if is_enum or type_name in SCALAR_TYPES else "message"


_SCALAR_KINDS: Final = {
    # Types of one kind have a common encoding.
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "varint"),
    **dict.fromkeys(("sint32", "sint64"), "zigzag"),
    **dict.fromkeys(("string", "bytes"), "string"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
}


def _find_scalar_kind(type_name: str) -> str:
    if type_name in SCALAR_TYPES:
        return _SCALAR_KINDS.get(type_name, type_name)
    return "varint"  # an enum
