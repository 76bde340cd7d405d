"""The syntax tree of `.proto` files (proto2 and proto3), and its parser.

The tree keeps what the text says: type names are not resolved, and options have the order of the text. Comments are
dropped. Clients send the text, so the parser is iterative where it can be, and the size of its input, the number of
tokens and the nesting depth are limited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

import msgspec

from chronik.errors import ChronikError

TEXT_LENGTH_MAX: Final = 1 << 20
"""Maximum length of a file in characters: the registry stores schemas of up to 1 MiB."""

TOKENS_MAX: Final = 250_000
"""Maximum number of tokens in a file. A file of 1 MiB with ordinary names has fewer."""

DEPTH_MAX: Final = 32
"""Maximum nesting depth of messages, and of values of options. protoc has the same limit for messages."""

NAME_LENGTH_MAX: Final = 1024
"""Maximum length of a name. It bounds the cost of resolving names, which tries each enclosing scope."""

FIELD_NUMBER_MAX: Final = 536_870_911

SCALAR_TYPES: Final = frozenset(
    (
        "bool",
        "bytes",
        "double",
        "fixed32",
        "fixed64",
        "float",
        "int32",
        "int64",
        "sfixed32",
        "sfixed64",
        "sint32",
        "sint64",
        "string",
        "uint32",
        "uint64",
    )
)


class ProtoSyntaxError(ChronikError):
    """Text that is not a `.proto` file, or that exceeds a limit of the parser."""


# The syntax tree


class Symbol(NamedTuple):
    """A number, a boolean or the name of an enum value in an option."""

    text: str
    is_number: bool


class Option(msgspec.Struct):
    """An option, such as `deprecated = true` or `(confluent.field_meta).doc = "x"`."""

    name: str
    value: OptionValue
    is_custom: bool = False
    """True if the name is that of an extension, in parentheses."""


OptionValue = str | Symbol | dict[str, "OptionValue"] | list["OptionValue"] | Option
"""A string, a number or name, a message, a list, or an option of a field within the option (`name.field = value`).

Bytes that a string specifies with escapes from `\\200` are lone surrogates, as in the error handler `surrogateescape`.
"""

Range = int | tuple[int, int]
"""A number, or an inclusive range of numbers."""


class ProtoField(msgspec.Struct):
    """A field of a message, of a oneof or of an extension."""

    label: str | None
    type: str
    """The type as the text names it, such as `int32`, `.foo.Bar` or `map<string, Bar>`."""
    name: str
    number: int
    options: list[Option] = []
    default: OptionValue | None = None
    json_name: str | None = None
    group: Message | None = None
    """The message type of a group, whose name is `type`."""


class Oneof(msgspec.Struct):
    """A oneof of a message."""

    name: str
    fields: list[ProtoField] = []
    options: list[Option] = []


class EnumValue(msgspec.Struct):
    """A value of an enum."""

    name: str
    number: int
    options: list[Option] = []


class ProtoEnum(msgspec.Struct):
    """An enum type."""

    name: str
    values: list[EnumValue] = []
    options: list[Option] = []
    reserved: list[list[str | Range]] = []


class Extend(msgspec.Struct):
    """Fields that extend another message."""

    type: str
    fields: list[ProtoField] = []


class ExtensionRanges(msgspec.Struct):
    """The numbers of a message that extensions may use."""

    ranges: list[Range] = []
    options: list[Option] = []


class Message(msgspec.Struct):
    """A message type."""

    name: str
    fields: list[ProtoField] = []
    """Fields outside of oneofs, including groups."""
    oneofs: list[Oneof] = []
    types: list[Message | ProtoEnum] = []
    options: list[Option] = []
    reserved: list[list[str | Range]] = []
    extension_ranges: list[ExtensionRanges] = []
    extends: list[Extend] = []


class Method(msgspec.Struct):
    """A method of a service."""

    name: str
    request: str
    response: str
    has_request_stream: bool = False
    has_response_stream: bool = False
    options: list[Option] = []


class Service(msgspec.Struct):
    """A service."""

    name: str
    methods: list[Method] = []
    options: list[Option] = []


class ProtoFile(msgspec.Struct):
    """A `.proto` file."""

    syntax: str | None = None
    package: str | None = None
    imports: list[str] = []
    public_imports: list[str] = []
    weak_imports: list[str] = []
    types: list[Message | ProtoEnum] = []
    services: list[Service] = []
    extends: list[Extend] = []
    options: list[Option] = []

    @property
    def is_proto3(self) -> bool:
        return self.syntax == "proto3"


def iter_fields(message: Message) -> Iterator[tuple[ProtoField, Oneof | None]]:
    """Yield the fields of a message with their oneofs, first those outside of oneofs."""
    for field in message.fields:
        yield field, None
    for oneof in message.oneofs:
        for field in oneof.fields:
            yield field, oneof


def iter_types(message: Message) -> Iterator[Message | ProtoEnum]:
    """Yield the types that are declared within a message, including those of its groups."""
    yield from message.types
    for field, _ in iter_fields(message):
        if field.group is not None:
            yield field.group
    for extend in message.extends:
        for field in extend.fields:
            if field.group is not None:
                yield field.group


def split_map_type(type_name: str) -> tuple[str, str] | None:
    """Return the key and value types of a map type, or None for other types."""
    if not type_name.startswith("map<"):
        return None
    key, _, value = type_name[4:-1].partition(", ")
    return key, value


# Tokens

# Each repetition of a group takes 130 bytes of backtracking state. Groups with captures cannot be repeated
# possessively, because of a bug in Python 3.11 (gh-101955).

_TOKEN: Final = re.compile(
    r"""
    [ \t\r\n\f\v]+ | //[^\n]* | /\*.*?\*/                      # skipped
    | (?P<word> [A-Za-z0-9_.-]+ (?: (?<=[0-9.][eE]) \+ [A-Za-z0-9_.-]* )* )
    | (?P<string> "[^"\\\n]*(?:\\.[^"\\\n]*)*" | '[^'\\\n]*(?:\\.[^'\\\n]*)*' )
    | (?P<mark> [][{}()<>=;,:/] )
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPE: Final = re.compile(
    r"\\(?: [xX]([0-9a-fA-F]{1,2}) | ([0-7]{1,3}) | u([0-9a-fA-F]{4}) | U([0-9a-fA-F]{8}) | (.) )",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SURROGATE: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPE_NAME: Final = re.compile(r"\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*+)*+")
_NUMBER: Final = re.compile(r"-?(?:[0-9]|\.[0-9])[A-Za-z0-9_.+-]*")
_INTEGER: Final = re.compile(r"-?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})")


def _unescape(match: re.Match[str]) -> str:
    hexadecimal, octal, short, long, character = match.groups()
    if character is not None:
        return _ESCAPED.get(character, character)
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
    byte = (int(hexadecimal, 16) if hexadecimal else int(octal, 8)) & 0xFF
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)


class _Tokens:
    """The tokens of a text, and a position among them."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_LENGTH_MAX:
            raise ProtoSyntaxError(f"the file has {len(text)} characters; the maximum is {TEXT_LENGTH_MAX}")
        self._text = text
        self.tokens: list[str] = []
        self._offsets: list[int] = []
        self.position = 0
        end = 0
        for match in _TOKEN.finditer(text):
            if match.start() != end:
                break
            end = match.end()
            if match.lastgroup is not None:
                self.tokens.append(match.group())
                self._offsets.append(match.start())
                if len(self.tokens) > TOKENS_MAX:
                    raise ProtoSyntaxError(f"the file has more than {TOKENS_MAX} tokens")
        self._offsets.append(end)
        if end != len(text):
            self.position = len(self.tokens)
            problem = {'"': "unterminated string", "'": "unterminated string"}.get(
                text[end], f"unexpected {text[end]!r}"
            )
            self.fail("unterminated comment" if text[end - 1 : end + 1] == "/*" else problem)
        self.tokens.append("")  # the end of the file

    def fail(self, problem: str, position: int | None = None) -> NoReturn:
        """Raise an error with the line and column of a token, by default the next one."""
        offset = self._offsets[self.position if position is None else position]
        line = self._text.count("\n", 0, offset) + 1
        column = offset - self._text.rfind("\n", 0, offset)
        raise ProtoSyntaxError(f"Syntax error in :{line}:{column}: {problem}")

    def peek(self) -> str:
        """Return the next token, or an empty string at the end of the file."""
        return self.tokens[self.position]

    def skip(self, token: str) -> bool:
        """Consume the next token if it is `token`; return whether it was."""
        if self.tokens[self.position] == token:
            self.position += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Consume a token."""
        if not self.skip(token):
            self.fail(f"expected '{token}' but was '{self.peek()[:64]}'" if self.peek() else "unexpected end of file")

    def take(self) -> str:
        """Consume and return the next token."""
        token = self.tokens[self.position]
        if not token:
            self.fail("unexpected end of file")
        self.position += 1
        return token

    def take_matching(self, pattern: re.Pattern[str], wanted: str) -> str:
        token = self.tokens[self.position]
        if not token:
            self.fail("unexpected end of file")
        if pattern.fullmatch(token) is None:
            self.fail(f"expected {wanted} but was '{token[:64]}'")
        if len(token) > NAME_LENGTH_MAX:
            self.fail(f"a name has more than {NAME_LENGTH_MAX} characters")
        self.position += 1
        return token

    def take_identifier(self) -> str:
        return self.take_matching(_IDENTIFIER, "a name")

    def take_type_name(self) -> str:
        return self.take_matching(_TYPE_NAME, "the name of a type")

    def take_integer(self, minimum: int, maximum: int) -> int:
        position = self.position
        token = self.take_matching(_INTEGER, "an integer")
        sign, digits = (-1, token[1:]) if token.startswith("-") else (1, token)
        is_octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        try:
            number = sign * int(digits, 16 if digits[:2] in ("0x", "0X") else 8 if is_octal else 10)
        except ValueError:
            self.fail(f"expected an integer but was {token}", position)
        if not minimum <= number <= maximum:
            self.fail(f"{number} is not between {minimum} and {maximum}", position)
        return number

    def take_string(self) -> str:
        """Consume one or more adjacent string literals and return their value."""
        parts = []
        while self.peek()[:1] in ('"', "'") and self.peek():
            literal = self.take()[1:-1]
            parts.append(_ESCAPE.sub(_unescape, literal) if "\\" in literal else literal)
        if not parts:
            self.fail(f"expected a quoted string but was '{self.peek()[:64]}'")
        text = "".join(parts)
        if _SURROGATE.search(text):
            self.fail("a string contains a surrogate")
        return text


# The parser


def parse_file(text: str) -> ProtoFile:
    """Parse a `.proto` file.

    Raises:
        ProtoSyntaxError: The text is not valid, or exceeds a limit.
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _Tokens(text)
        self._file = ProtoFile()

    def parse(self) -> ProtoFile:
        tokens, file = self._tokens, self._file
        is_first = True
        while tokens.peek():
            position = tokens.position
            word = tokens.take()
            match word:
                case ";":
                    pass
                case "syntax":
                    if not is_first:
                        tokens.fail("'syntax' element must be the first declaration in a file", position)
                    tokens.expect("=")
                    file.syntax = tokens.take_string()
                    if file.syntax not in ("proto2", "proto3"):
                        tokens.fail(f"unexpected syntax: {file.syntax[:64]}", position)
                    tokens.expect(";")
                case "edition":
                    tokens.fail("edition is not currently supported", position)
                case "package":
                    if file.package is not None:
                        tokens.fail("too many package declarations", position)
                    file.package = tokens.take_type_name()
                    tokens.expect(";")
                case "import":
                    self._parse_import()
                case "option":
                    file.options.append(self._parse_option_declaration())
                case "message":
                    file.types.append(self._parse_message(tokens.take_identifier(), 1))
                case "enum":
                    file.types.append(self._parse_enum())
                case "service":
                    file.services.append(self._parse_service())
                case "extend":
                    file.extends.append(self._parse_extend(1))
                case _:
                    tokens.fail(f"unexpected label: {word[:64]}", position)
            is_first = False
        self._check_unique([declared.name for declared in [*file.types, *file.services]], "the file")
        return file

    def _parse_import(self) -> None:
        tokens, file = self._tokens, self._file
        imports = file.imports
        if tokens.skip("public"):
            imports = file.public_imports
        elif tokens.skip("weak"):
            imports = file.weak_imports
        path = tokens.take_string()
        if not path.isprintable() or len(path) > NAME_LENGTH_MAX:
            tokens.fail("an import path is too long or contains control characters")
        imports.append(path)
        tokens.expect(";")

    def _parse_message(self, name: str, depth: int) -> Message:
        tokens = self._tokens
        if depth > DEPTH_MAX:
            tokens.fail(f"messages are nested more than {DEPTH_MAX} levels deep")
        message = Message(name)
        tokens.expect("{")
        while not tokens.skip("}"):
            start = tokens.position
            word = tokens.take()
            # Keywords are also valid names of types: a field such as `message foo = 1` declares no message.
            following = tokens.peek()
            is_block = tokens.tokens[min(tokens.position + 1, len(tokens.tokens) - 1)] == "{"
            if word == ";":
                pass
            elif word == "option":
                message.options.append(self._parse_option_declaration())
            elif word == "reserved" and not _IDENTIFIER.fullmatch(following):
                message.reserved.append(self._parse_reserved(FIELD_NUMBER_MAX, 1))
            elif word == "extensions" and not _IDENTIFIER.fullmatch(following):
                message.extension_ranges.append(self._parse_extension_ranges())
            elif word == "message" and is_block:
                message.types.append(self._parse_message(tokens.take_identifier(), depth + 1))
            elif word == "enum" and is_block:
                message.types.append(self._parse_enum())
            elif word == "extend" and is_block:
                message.extends.append(self._parse_extend(depth))
            elif word == "oneof" and is_block:
                message.oneofs.append(self._parse_oneof(depth))
            else:
                tokens.position = start
                message.fields.append(self._parse_field(depth))
        self._check_message(message)
        return message

    def _parse_oneof(self, depth: int) -> Oneof:
        tokens = self._tokens
        oneof = Oneof(tokens.take_identifier())
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.skip(";"):
                continue
            if tokens.skip("option"):
                oneof.options.append(self._parse_option_declaration())
            else:
                oneof.fields.append(self._parse_field(depth, in_oneof=True))
        return oneof

    def _parse_extend(self, depth: int) -> Extend:
        tokens = self._tokens
        extend = Extend(tokens.take_type_name())
        tokens.expect("{")
        while not tokens.skip("}"):
            if not tokens.skip(";"):
                extend.fields.append(self._parse_field(depth))
        return extend

    def _parse_field(self, depth: int, *, in_oneof: bool = False) -> ProtoField:
        tokens = self._tokens
        start = tokens.position
        label = None
        if tokens.peek() in ("optional", "required", "repeated") and not in_oneof:
            label = tokens.take()
        if label == "required" and self._file.is_proto3:
            tokens.fail("'required' label forbidden in proto3 field declarations", start)
        if tokens.peek() == "group" and _IDENTIFIER.fullmatch(tokens.tokens[tokens.position + 1]):
            if self._file.is_proto3:
                tokens.fail("groups are forbidden in proto3", start)
            if label is None and not in_oneof:
                tokens.fail("unexpected label: group", start)
            tokens.take()
            name = tokens.take_identifier()
            tokens.expect("=")
            number = self._take_field_number()
            options = self._parse_options()
            return ProtoField(label, name, name.lower(), number, options, group=self._parse_message(name, depth + 1))
        if tokens.peek() == "map" and tokens.tokens[tokens.position + 1] == "<":
            if label is not None:
                tokens.fail("'map' type cannot have label", start)
            if in_oneof:
                tokens.fail("'map' type cannot be in a oneof", start)
            tokens.position += 2
            key = tokens.take_type_name()
            if key not in SCALAR_TYPES or key in ("bytes", "double", "float"):
                tokens.fail(f"map key must be non-byte, non-floating point scalar: {key[:64]}", tokens.position - 1)
            tokens.expect(",")
            type_name = f"map<{key}, {tokens.take_type_name()}>"
            tokens.expect(">")
        else:
            type_name = tokens.take_type_name()
            if label is None and not in_oneof and not self._file.is_proto3:
                tokens.fail(f"unexpected label: {type_name[:64]}", start)
        name = tokens.take_identifier()
        tokens.expect("=")
        field = ProtoField(label, type_name, name, self._take_field_number(), self._parse_options())
        tokens.expect(";")
        for option in field.options:
            if option.is_custom:
                continue
            if option.name == "default":
                field.default = option.value
            elif option.name == "json_name":
                if not isinstance(option.value, str):
                    tokens.fail("json_name is not a string", start)
                field.json_name = option.value
        if field.default is not None or field.json_name is not None:
            field.options = [
                option for option in field.options if option.is_custom or option.name not in ("default", "json_name")
            ]
        return field

    def _take_field_number(self) -> int:
        position = self._tokens.position
        number = self._tokens.take_integer(1, FIELD_NUMBER_MAX)
        if 19_000 <= number <= 19_999:
            self._tokens.fail("field numbers 19000 to 19999 are reserved for Protobuf", position)
        return number

    def _parse_enum(self) -> ProtoEnum:
        tokens = self._tokens
        enum = ProtoEnum(tokens.take_identifier())
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.skip(";"):
                continue
            following = tokens.tokens[tokens.position + 1]
            if tokens.peek() == "option" and following != "=":
                tokens.take()
                enum.options.append(self._parse_option_declaration())
            elif tokens.peek() == "reserved" and following != "=":
                tokens.take()
                enum.reserved.append(self._parse_reserved(2**31 - 1, -(2**31)))
            else:
                name = tokens.take_identifier()
                tokens.expect("=")
                number = tokens.take_integer(-(2**31), 2**31 - 1)
                enum.values.append(EnumValue(name, number, self._parse_options()))
                tokens.expect(";")
        self._check_unique([value.name for value in enum.values], f"enum {enum.name}")
        return enum

    def _parse_reserved(self, maximum: int, minimum: int) -> list[str | Range]:
        tokens = self._tokens
        values: list[str | Range] = []
        while True:
            if tokens.peek()[:1] in ('"', "'"):
                values.append(tokens.take_string())
            else:
                values.append(self._parse_range(maximum, minimum))
            if tokens.skip(";"):
                return values
            tokens.expect(",")

    def _parse_range(self, maximum: int, minimum: int) -> Range:
        tokens = self._tokens
        start = tokens.take_integer(minimum, maximum)
        if not tokens.skip("to"):
            return start
        end = maximum if tokens.skip("max") else tokens.take_integer(minimum, maximum)
        if end < start:
            tokens.fail(f"range {start} to {end} is empty")
        return start, end

    def _parse_extension_ranges(self) -> ExtensionRanges:
        tokens = self._tokens
        ranges = ExtensionRanges()
        while True:
            ranges.ranges.append(self._parse_range(FIELD_NUMBER_MAX, 1))
            if tokens.peek() == "[":
                ranges.options = self._parse_options()
                tokens.expect(";")
                return ranges
            if tokens.skip(";"):
                return ranges
            tokens.expect(",")

    def _parse_service(self) -> Service:
        tokens = self._tokens
        service = Service(tokens.take_identifier())
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.skip(";"):
                continue
            if tokens.skip("option"):
                service.options.append(self._parse_option_declaration())
            else:
                tokens.expect("rpc")
                service.methods.append(self._parse_method())
        return service

    def _parse_method(self) -> Method:
        tokens = self._tokens
        name = tokens.take_identifier()
        has_request_stream, request = self._parse_method_type()
        tokens.expect("returns")
        has_response_stream, response = self._parse_method_type()
        method = Method(name, request, response, has_request_stream, has_response_stream)
        if tokens.skip(";"):
            return method
        tokens.expect("{")
        while not tokens.skip("}"):
            if not tokens.skip(";"):
                tokens.expect("option")
                method.options.append(self._parse_option_declaration())
        return method

    def _parse_method_type(self) -> tuple[bool, str]:
        tokens = self._tokens
        tokens.expect("(")
        is_stream = tokens.peek() == "stream" and tokens.tokens[tokens.position + 1] != ")"
        if is_stream:
            tokens.take()
        name = tokens.take_type_name()
        tokens.expect(")")
        return is_stream, name

    # Options

    def _parse_option_declaration(self) -> Option:
        option = self._parse_option()
        self._tokens.expect(";")
        return option

    def _parse_options(self) -> list[Option]:
        """Parse options in brackets, if there are any."""
        tokens = self._tokens
        if not tokens.skip("["):
            return []
        options = [self._parse_option()]
        while not tokens.skip("]"):
            tokens.expect(",")
            options.append(self._parse_option())
        return options

    def _parse_option(self) -> Option:
        tokens = self._tokens
        names: list[tuple[str, bool]] = []
        start = tokens.position
        while not tokens.skip("="):
            if len(names) > DEPTH_MAX:
                tokens.fail(f"an option names more than {DEPTH_MAX} nested fields", start)
            if tokens.skip("("):
                names.append((tokens.take_type_name(), True))
                tokens.expect(")")
                continue
            word = tokens.take()
            parts = (word[1:] if names and word.startswith(".") else word).split(".")
            if parts[-1] == "" and tokens.peek() == "(":  # a dot before an extension, as in `(foo).bar.(baz)`
                parts.pop()
            if not all(_IDENTIFIER.fullmatch(part) for part in parts) or len(word) > NAME_LENGTH_MAX:
                tokens.fail("expected '=' in option" if names else f"expected a name but was '{word[:64]}'", start)
            if names:
                names.extend((part, False) for part in parts)
            else:
                names.append((word, False))
        if not names:
            tokens.fail("expected a name", start)
        if len(names) > DEPTH_MAX:
            tokens.fail(f"an option names more than {DEPTH_MAX} nested fields", start)
        value = self._parse_value(1)
        for name, is_custom in reversed(names[1:]):
            value = Option(name, value, is_custom)
        return Option(names[0][0], value, names[0][1])

    def _parse_value(self, depth: int) -> OptionValue:
        tokens = self._tokens
        if depth > DEPTH_MAX:
            tokens.fail(f"values of options are nested more than {DEPTH_MAX} levels deep")
        token = tokens.peek()
        if token == "{":
            return self._parse_aggregate(depth)
        if token == "[":
            tokens.take()
            values: list[OptionValue] = []
            while not tokens.skip("]"):
                values.append(self._parse_value(depth + 1))
                if tokens.peek() != "]":
                    tokens.expect(",")
            return values
        if token[:1] in ('"', "'") and token:
            return tokens.take_string()
        if _NUMBER.fullmatch(token):
            return Symbol(tokens.take(), is_number=True)
        if token in ("-inf", "-nan"):
            return Symbol(tokens.take(), is_number=True)
        return Symbol(tokens.take_identifier(), is_number=False)

    def _parse_aggregate(self, depth: int) -> dict[str, OptionValue]:
        tokens = self._tokens
        tokens.expect("{")
        values: dict[str, OptionValue] = {}
        while not tokens.skip("}"):
            if tokens.skip("["):
                parts = [tokens.take_type_name()]
                while tokens.skip("/"):
                    parts.append(tokens.take_type_name())
                name = f"[{'/'.join(parts)}]"
                tokens.expect("]")
            else:
                name = tokens.take_identifier()
            if not tokens.skip(":") and tokens.peek() != "{":
                tokens.fail("expected ':' in option")
            value = self._parse_value(depth + 1)
            previous = values.get(name)
            if previous is None:
                values[name] = value
            else:
                if not isinstance(previous, list):
                    values[name] = previous = [previous]
                previous.extend(value if isinstance(value, list) else [value])
            if not tokens.skip(","):
                tokens.skip(";")
        return values

    # Checks

    def _check_message(self, message: Message) -> None:
        numbers: set[int] = set()
        names = [declared.name for declared in iter_types(message)]
        for field, _ in iter_fields(message):
            if field.number in numbers:
                self._tokens.fail(f"message {message.name} uses field number {field.number} twice", -1)
            numbers.add(field.number)
            names.append(field.name)
        names.extend(oneof.name for oneof in message.oneofs)
        self._check_unique(names, f"message {message.name}")

    def _check_unique(self, names: list[str], scope: str) -> None:
        if len(set(names)) == len(names):
            return
        seen: set[str] = set()
        for name in names:
            if name in seen:
                self._tokens.fail(f"{name} is already defined in {scope}", -1)
            seen.add(name)
