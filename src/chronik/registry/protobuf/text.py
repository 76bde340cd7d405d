"""The text of Protobuf schemas as the registry stores it, and its normal form.

Both have the layout of Confluent's registry, so that clients of both find the same schemas. In normal form, the
declarations within a message are sorted by number, type names are full names, and options are sorted and merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

from chronik.formats.protobuf.names import Extension, NameIndex, is_map_entry, join_names
from chronik.formats.protobuf.syntax import (
    FIELD_NUMBER_MAX,
    SCALAR_TYPES,
    TEXT_LENGTH_MAX,
    EnumValue,
    Extend,
    ExtensionRanges,
    Message,
    Method,
    Oneof,
    Option,
    OptionValue,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoSyntaxError,
    Range,
    Service,
    Symbol,
    split_map_type,
)

_INDENT: Final = "  "


def render_file(file: ProtoFile, *, ignore_extensions: bool = False) -> str:
    """Return the text of a file, with declarations and names as they are.

    `ignore_extensions` omits extensions and custom options, except for those of Confluent.
    """
    return _Renderer(ignore_extensions=ignore_extensions).render(file)


def normalize_file(file: ProtoFile, index: NameIndex) -> str:
    """Return the text of a file in normal form.

    Raises:
        ProtoSyntaxError: A type is not declared.
    """
    return _Renderer(index).render(file)


class _Renderer:
    """Renders a file as lines without line ends; nested blocks are indented when they are added to their parents."""

    def __init__(self, index: NameIndex | None = None, *, ignore_extensions: bool = False) -> None:
        self._index = index
        self._ignores_extensions = ignore_extensions

    def render(self, file: ProtoFile) -> str:
        package = (file.package or "").removeprefix(".")
        lines = []
        if file.syntax is not None and (self._index is None or file.is_proto3):
            lines.append(f'syntax = "{file.syntax}";')
        if file.package is not None:
            lines.append(f"package {file.package};")
        imports = [
            f'import {kind}"{escape(path)}";'
            for kind, paths in (("", file.imports), ("public ", file.public_imports), ("weak ", file.weak_imports))
            for path in (paths if self._index is None else sorted(set(paths)))
        ]
        sections = [
            imports,
            self._declare_options(file.options, package),
            self._render_types(file.types, package),
            self._render_extends(file.extends, package),
            [line for service in file.services for line in self._render_service(service, package)],
        ]
        for section in sections:
            if section:
                lines += ["", *section]
        length = sum(map(len, lines)) + len(lines)
        if length > TEXT_LENGTH_MAX:
            raise ProtoSyntaxError(
                f"the schema has {length} characters when formatted; the maximum is {TEXT_LENGTH_MAX}"
            )
        return "".join(f"{line}\n" for line in lines)

    # Types

    def _render_types(self, types: Sequence[Message | ProtoEnum], scope: str) -> list[str]:
        # The order of messages is kept even in normal form, because serializers store the index of a message.
        lines: list[str] = []
        for declaration in types:
            if isinstance(declaration, Message) and not (self._index is not None and is_map_entry(declaration)):
                lines += self._render_message(declaration, join_names(scope, declaration.name), "message")
        for declaration in types:
            if isinstance(declaration, ProtoEnum):
                lines += self._render_enum(declaration, join_names(scope, declaration.name))
        return lines

    def _render_message(self, message: Message, scope: str, keyword: str) -> list[str]:
        plain = [field for field in message.fields if field.group is None]
        groups = [field for field in message.fields if field.group is not None]
        oneofs = message.oneofs
        if self._index is not None:
            oneofs = [
                Oneof(oneof.name, sorted(oneof.fields, key=_field_number), oneof.options)
                for oneof in oneofs
                if oneof.fields
            ]
            oneofs.sort(key=lambda oneof: oneof.fields[0].number)
        sections = [
            self._render_reserved(message.reserved),
            self._declare_options(message.options, scope),
            [line for field in self._sort_fields(plain) for line in self._render_field(field, scope)],
            [line for oneof in oneofs for line in self._render_oneof(oneof, scope)],
            [line for field in self._sort_fields(groups) for line in self._render_field(field, scope)],
            self._render_extension_ranges(message.extension_ranges, scope),
            self._render_extends(message.extends, scope),
            self._render_types(message.types, scope),
        ]
        return _join_block(f"{keyword} {message.name}", sections)

    def _render_oneof(self, oneof: Oneof, scope: str) -> list[str]:
        plain = [field for field in oneof.fields if field.group is None]
        groups = [field for field in oneof.fields if field.group is not None]
        sections = [
            self._declare_options(oneof.options, scope),
            [line for field in plain for line in self._render_field(field, scope)],
            [line for field in groups for line in self._render_field(field, scope)],
        ]
        return _join_block(f"oneof {oneof.name}", sections)

    def _render_enum(self, enum: ProtoEnum, scope: str) -> list[str]:
        values = enum.values
        if self._index is not None:
            values = sorted(values, key=lambda value: (value.number, value.name))
        # Confluent separates neither options from values nor reserved numbers from either.
        content = [
            *self._render_reserved(enum.reserved),
            *self._declare_options(enum.options, scope),
            *(line for value in values for line in self._render_enum_value(value, scope)),
        ]
        return _join_block(f"enum {enum.name}", [content])

    def _render_enum_value(self, value: EnumValue, scope: str) -> list[str]:
        return self._append_options(f"{value.name} = {value.number}", value.options, scope)

    def _render_field(self, field: ProtoField, scope: str) -> list[str]:
        label, type_name = field.label, field.type
        if field.group is not None:
            head = f"{label} " if label else ""
            options = "".join(_join_options(self._format_options(field.options, scope)))
            name = f"{field.group.name} = {field.number}" + (f" {options}" if options else "")
            return self._render_message(
                Message(
                    name,
                    field.group.fields,
                    field.group.oneofs,
                    field.group.types,
                    field.group.options,
                    field.group.reserved,
                    field.group.extension_ranges,
                    field.group.extends,
                ),
                join_names(scope, field.group.name),
                f"{head}group",
            )
        if self._index is not None:
            label, type_name = self._resolve_field_type(field, scope)
        options_ = list(field.options)
        if field.default is not None:
            options_.append(Option("default", field.default))
        if field.json_name is not None:
            options_.append(Option("json_name", field.json_name))
        head = f"{label} " if label else ""
        return self._append_options(f"{head}{type_name} {field.name} = {field.number}", options_, scope)

    def _resolve_field_type(self, field: ProtoField, scope: str) -> tuple[str | None, str]:
        assert self._index is not None
        map_types = split_map_type(field.type)
        if map_types is None:
            if field.type in SCALAR_TYPES:
                return field.label, field.type
            info = self._index.find_type(field.type, scope)
            if info is None:
                raise ProtoSyntaxError(f"Could not resolve type: {field.type}")
            if not isinstance(info.declaration, Message) or not is_map_entry(info.declaration):
                return field.label, "." + info.full_name
            key, value = self._index.find_field(info, "key"), self._index.find_field(info, "value")
            if key is None or value is None:
                raise ProtoSyntaxError(f"map entry {info.full_name} has no key or value")
            map_types, scope = (key.type, value.type), info.full_name
        key_type, value_type = map_types
        if value_type not in SCALAR_TYPES:
            info = self._index.find_type(value_type, scope)
            if info is None:
                raise ProtoSyntaxError(f"Could not resolve type: {value_type}")
            value_type = "." + info.full_name
        return None, f"map<{key_type}, {value_type}>"

    def _sort_fields(self, fields: list[ProtoField]) -> list[ProtoField]:
        return fields if self._index is None else sorted(fields, key=_field_number)

    # Ranges, extensions and services

    def _render_reserved(self, reserved: Sequence[Sequence[str | Range]]) -> list[str]:
        if self._index is not None:
            reserved = [[value] for value in sorted(_flatten(reserved), key=_reserved_key)]
        return [f"reserved {', '.join(map(self._format_range, values))};" for values in reserved]

    def _format_range(self, value: str | Range) -> str:
        if isinstance(value, str):
            return f'"{escape(value)}"'
        if isinstance(value, int):
            return str(value)
        start, end = value
        if self._index is not None and start == end:
            return str(start)
        return f"{start} to {end if end < FIELD_NUMBER_MAX else 'max'}"

    def _render_extension_ranges(self, extension_ranges: Sequence[ExtensionRanges], scope: str) -> list[str]:
        if self._ignores_extensions:
            return []
        if self._index is not None:
            extension_ranges = [
                ExtensionRanges([single], ranges.options) for ranges in extension_ranges for single in ranges.ranges
            ]
            extension_ranges.sort(key=lambda ranges: _reserved_key(ranges.ranges[0])[0])
        lines: list[str] = []
        for ranges in extension_ranges:
            text = f"extensions {', '.join(map(self._format_range, ranges.ranges))}"
            lines += self._append_options(text, ranges.options, scope)
        return lines

    def _render_extends(self, extends: Sequence[Extend], scope: str) -> list[str]:
        if self._ignores_extensions:
            return []
        if self._index is not None:
            by_type: dict[str, list[ProtoField]] = {}
            for extend in extends:
                by_type.setdefault(self._resolve(extend.type, scope), []).extend(extend.fields)
            extends = [Extend(type_name, fields) for type_name, fields in by_type.items()]
        lines: list[str] = []
        for extend in extends:
            fields = [line for field in self._sort_fields(extend.fields) for line in self._render_field(field, scope)]
            lines += _join_block(f"extend {extend.type}", [fields])
        return lines

    def _render_service(self, service: Service, scope: str) -> list[str]:
        methods = [line for method in service.methods for line in self._render_method(method, scope)]
        return _join_block(f"service {service.name}", [self._declare_options(service.options, scope), methods])

    def _render_method(self, method: Method, scope: str) -> list[str]:
        request = ("stream " if method.has_request_stream else "") + self._resolve(method.request, scope)
        response = ("stream " if method.has_response_stream else "") + self._resolve(method.response, scope)
        text = f"rpc {method.name} ({request}) returns ({response})"
        options = self._declare_options(method.options, scope)
        return [f"{text} {{", *_indent(options), "};"] if options else [f"{text};"]

    def _resolve(self, type_name: str, scope: str) -> str:
        if self._index is None:
            return type_name
        info = self._index.find_type(type_name, scope)
        if info is None:
            raise ProtoSyntaxError(f"Could not resolve type: {type_name}")
        return "." + info.full_name

    # Options

    def _declare_options(self, options: Sequence[Option], scope: str) -> list[str]:
        lines: list[str] = []
        for option in self._format_options(options, scope):
            lines += ["option " + option[0], *option[1:]]
            lines[-1] += ";"
        return lines

    def _append_options(self, text: str, options: Sequence[Option], scope: str) -> list[str]:
        """Return the lines of a declaration that ends with options in brackets."""
        lines = _join_options(self._format_options(options, scope))
        lines = [f"{text} {lines[0]}", *lines[1:]] if lines else [text]
        lines[-1] += ";"
        return lines

    def _format_options(self, options: Sequence[Option], scope: str) -> list[list[str]]:
        if self._ignores_extensions:
            options = [
                option
                for option in options
                if not option.is_custom or option.name.removeprefix(".").startswith("confluent.")
            ]
        if self._index is not None:
            options = self._merge_options(options, scope)
        return [self._format_option(option, scope) for option in options]

    def _merge_options(self, options: Sequence[Option], scope: str) -> list[Option]:
        """Qualify the names of custom options, and merge the values that one option is set to."""
        assert self._index is not None
        by_name: dict[str, list[Option]] = {}
        extensions: dict[str, Extension] = {}
        for option in options:
            name, value = option.name, option.value
            found = self._index.find_extension(name, scope) if option.is_custom else None
            if found is not None:
                name = found.full_name
                extensions[name] = found
                value = _nest(value)
            by_name.setdefault(name, []).append(Option(name, value, option.is_custom))
        merged: list[Option] = []
        for name in sorted(by_name):
            same = by_name[name]
            extension = extensions.get(name)
            if extension is not None and extension.field.label != "repeated" and len(same) > 1:
                value = _copy(same[0].value)
                for option in same[1:]:
                    value = self._merge_values(extension.field, extension.scope, value, option.value)
                same = [Option(name, value, is_custom=True)]
            merged += same
        return merged

    def _merge_values(
        self, field: ProtoField | None, scope: str, target: OptionValue, value: OptionValue
    ) -> OptionValue:
        """Merge a value into `target`, which it may change, and return the result."""
        assert self._index is not None
        if field is not None and field.label != "repeated":
            if not isinstance(target, dict) or not isinstance(value, dict):
                return _copy(value)  # the last value of a scalar wins
            info = self._index.find_type(field.type, scope)
            for name, element in value.items():
                nested = self._index.find_field(info, name) if info is not None else None
                inner = info.full_name if info is not None else scope
                if name in target:
                    target[name] = self._merge_values(nested, inner, target[name], element)
                else:
                    target[name] = _copy(element)
            return target
        values: list[OptionValue] = target if isinstance(target, list) else [target]
        values.extend(value if isinstance(value, list) else [value])
        return values

    def _format_option(self, option: Option, scope: str) -> list[str]:
        name = f"({option.name})" if option.is_custom else option.name
        value = option.value
        if isinstance(value, Option):
            lines = self._format_option(value, scope)
            return [f"{name}.{lines[0]}", *lines[1:]]
        if isinstance(value, list):
            lines = _join_options([self._format_value(element, scope) for element in value])
            return [f"{name} = {lines[0]}", *lines[1:]] if lines else [f"{name} = []"]
        lines = self._format_value(value, scope)
        return [f"{name} = {lines[0]}", *lines[1:]]

    def _format_value(self, value: OptionValue, scope: str) -> list[str]:
        if isinstance(value, str):
            return [f'"{escape(value)}"']
        if isinstance(value, Symbol):
            return [_normalize_number(value.text) if value.is_number and self._index is not None else value.text]
        if isinstance(value, Option):
            return self._format_option(value, scope)
        if isinstance(value, list):
            if self._index is not None and len(value) == 1:
                return self._format_value(value[0], scope)
            return ["[", *_indent_elements([self._format_value(element, scope) for element in value]), "]"]
        entries = list(value.items())
        if self._index is not None:
            qualified: dict[str, OptionValue] = {}
            for name, element in reversed(entries):
                if not isinstance(element, list) or element:
                    qualified[self._qualify_key(name, scope)] = element
            entries = sorted(qualified.items())
        elements = []
        for name, element in entries:
            lines = self._format_value(element, scope)
            elements.append([f"{name}: {lines[0]}", *lines[1:]])
        return ["{", *_indent_elements(elements), "}"]

    def _qualify_key(self, name: str, scope: str) -> str:
        assert self._index is not None
        found = self._index.find_extension(name[1:-1], scope) if name.startswith("[") else None
        return f"[{found.full_name}]" if found is not None else name


_ESCAPED: Final = {
    "\a": "a",
    "\b": "b",
    "\f": "f",
    "\n": "n",
    "\r": "r",
    "\t": "t",
    "\v": "v",
    "\\": "\\",
    "'": "'",
    '"': '"',
}

# Other control characters, and bytes that are not text, can only be written as octal numbers.
_ESCAPES: Final[dict[int, str]] = {
    **{code: f"\\{code:03o}" for code in (*range(0x20), 0x7F)},
    **{0xDC00 + code: f"\\{code:03o}" for code in range(0x80, 0x100)},
    **{ord(character): f"\\{escaped}" for character, escaped in _ESCAPED.items()},
}


def escape(text: str) -> str:
    """Escape a string for a literal in double quotes."""
    return text.translate(_ESCAPES)


def _nest(value: OptionValue) -> OptionValue:
    """Convert an option of a field within an option to a message with this field."""
    if isinstance(value, Option):
        return {f"[{value.name}]" if value.is_custom else value.name: _nest(value.value)}
    return value


def _copy(value: OptionValue) -> OptionValue:
    """Return a copy whose messages and lists can be changed."""
    if isinstance(value, dict):
        return {name: _copy(element) for name, element in value.items()}
    return [_copy(element) for element in value] if isinstance(value, list) else value


def _normalize_number(text: str) -> str:
    """Return a number without redundant digits, or the text if it is not finite or too large."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    try:
        if digits[:2] in ("0x", "0X"):
            return sign + str(int(digits, 16))
        if digits.isdigit():
            return sign + str(int(digits, 8 if digits[0] == "0" and len(digits) > 1 and len(digits) < 25 else 10))
        number = Decimal(digits.removesuffix("f").removesuffix("F"))
    except (InvalidOperation, ValueError):
        return text
    if not number.is_finite() or abs(number.adjusted()) > 40 or len(digits) > 60:
        return text
    plain = format(number, "f")
    return sign + (plain.rstrip("0").rstrip(".") if "." in plain else plain)


def _join_block(head: str, sections: Iterable[list[str]]) -> list[str]:
    """Return the lines of a block in braces, with empty lines between its sections."""
    lines: list[str] = []
    for section in sections:
        if section:
            if lines:
                lines.append("")
            lines += _indent(section)
    return [f"{head} {{", *lines, "}"] if lines else [f"{head} {{}}"]


def _indent(lines: Iterable[str]) -> list[str]:
    return [_INDENT + line for line in lines]


def _indent_elements(elements: Sequence[list[str]]) -> list[str]:
    """Return the lines of elements, indented and separated by commas."""
    lines: list[str] = []
    for number, element in enumerate(elements, 1):
        lines += _indent(element)
        if number < len(elements):
            lines[-1] += ","
    return lines


def _join_options(options: Sequence[list[str]]) -> list[str]:
    if not options:
        return []
    if len(options) == 1:
        (lines,) = options
        lines = ["[" + lines[0], *lines[1:]]
        lines[-1] += "]"
        return lines
    return ["[", *_indent_elements(options), "]"]


def _field_number(field: ProtoField) -> int:
    return field.number


def _flatten(reserved: Sequence[Sequence[str | Range]]) -> list[str | Range]:
    return [value for values in reserved for value in values]


def _reserved_key(value: str | Range) -> tuple[int, str]:
    if isinstance(value, str):
        return FIELD_NUMBER_MAX * 8, value
    return (value, str(value)) if isinstance(value, int) else (value[0], f"{value[0]}..{value[1]}")
