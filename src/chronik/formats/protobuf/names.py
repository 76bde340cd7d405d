"""Resolution of type names across `.proto` files, by the scoping rules of Protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from chronik.formats.protobuf.built_in import built_in_files
from chronik.formats.protobuf.syntax import (
    DEPTH_MAX,
    NAME_LENGTH_MAX,
    Extend,
    Message,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoSyntaxError,
    Symbol,
    iter_fields,
    iter_types,
)

ROOT: Final = ""
"""The path of the file that a schema consists of; its references have the paths by which it imports them."""


class TypeInfo(NamedTuple):
    """A declared message or enum type."""

    path: str
    package: str
    local_name: str
    """The name within the package, such as `Outer.Inner`."""
    declaration: Message | ProtoEnum

    @property
    def full_name(self) -> str:
        return join_names(self.package, self.local_name)


class Extension(NamedTuple):
    """A declared extension, and the scope in which the name of its type is resolved."""

    full_name: str
    field: ProtoField
    scope: str


class NameIndex:
    """The types and extensions that several files declare, by full name without a leading dot."""

    def __init__(self, root: ProtoFile, dependencies: Mapping[str, ProtoFile]) -> None:
        self.types: dict[str, TypeInfo] = {}
        self.extensions: dict[str, Extension] = {}
        self.files: dict[str, ProtoFile] = {}
        # Definitions of the schema and of its references take precedence over those that are built in.
        self._add(ROOT, root)
        for path, file in dependencies.items():
            if path not in self.files:
                self._add(path, file)
        self._has_built_in_types = False
        self._fields: dict[str, dict[str, ProtoField]] = {}

    def add_built_in_files(self) -> None:
        """Add the types of Google and Confluent that schemas may use without references."""
        if not self._has_built_in_types:
            for path, file in built_in_files().items():
                if path not in self.files:
                    self._add(path, file)
            self._has_built_in_types = True  # last: another thread may use the same index

    def find_type(self, name: str, scope: str) -> TypeInfo | None:
        """Return the type that a name refers to within a message or package, or None."""
        if name.startswith("."):
            found = self.types.get(name[1:])
        else:
            found = next((self.types[full] for full in _iter_candidates(name, scope) if full in self.types), None)
        if found is None and not self._has_built_in_types:
            self.add_built_in_files()
            return self.find_type(name, scope)
        return found

    def find_field(self, info: TypeInfo, name: str) -> ProtoField | None:
        """Return the field of a message with a name, or None."""
        fields = self._fields.get(info.full_name)
        if fields is None:
            message = info.declaration
            fields = {field.name: field for field, _ in iter_fields(message)} if isinstance(message, Message) else {}
            self._fields[info.full_name] = fields
        return fields.get(name)

    def find_extension(self, name: str, scope: str) -> Extension | None:
        """Return the extension that a name refers to, or None."""
        name = name.removeprefix(".")
        for full_name in _iter_candidates(name, scope):
            if full_name in self.extensions:
                return self.extensions[full_name]
        if not self._has_built_in_types:
            self.add_built_in_files()
            return self.find_extension(name, scope)
        return None

    def _add(self, path: str, file: ProtoFile) -> None:
        self.files[path] = file
        package = (file.package or "").removeprefix(".")
        if package.count(".") >= DEPTH_MAX:
            raise ProtoSyntaxError(f"the package has more than {DEPTH_MAX} components")
        self._add_extends(file.extends, package, path, package, "")
        self._add_types(file.types, path, package, "")

    def _add_types(self, types: Iterable[Message | ProtoEnum], path: str, package: str, outer: str) -> None:
        for declaration in types:
            local_name = join_names(outer, declaration.name)
            full_name = join_names(package, local_name)
            if len(full_name) > NAME_LENGTH_MAX:
                raise ProtoSyntaxError(f"the full name of a type has more than {NAME_LENGTH_MAX} characters")
            self.types.setdefault(full_name, TypeInfo(path, package, local_name, declaration))
            if isinstance(declaration, Message):
                self._add_extends(declaration.extends, full_name, path, package, local_name)
                self._add_types(iter_types(declaration), path, package, local_name)

    def _add_extends(self, extends: Iterable[Extend], scope: str, path: str, package: str, outer: str) -> None:
        for extend in extends:
            for field in extend.fields:
                full_name = join_names(scope, field.name)
                self.extensions.setdefault(full_name, Extension(full_name, field, scope))
            if not outer:
                groups = [field.group for field in extend.fields if field.group is not None]
                self._add_types(groups, path, package, outer)


def join_names(outer: str, name: str) -> str:
    """Return the full name of a declaration within a scope."""
    return f"{outer}.{name}" if outer else name


def _iter_candidates(name: str, scope: str) -> Iterable[str]:
    """Yield the full names that a name can mean in a scope, from the innermost scope to the outermost."""
    while scope:
        yield f"{scope}.{name}"
        scope = scope.rpartition(".")[0]
    yield name


def is_map_entry(message: Message) -> bool:
    """Return whether a message is the type of a map's entries, as descriptors declare it."""
    return any(
        option.name == "map_entry" and not option.is_custom and option.value == Symbol("true", is_number=False)
        for option in message.options
    )
