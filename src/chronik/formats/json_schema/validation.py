"""Validation of values by a JSON Schema, in bounded time.

The validator is jsonschema-rs: compiled, with exact numbers, and with a regular-expression engine whose time is linear.
It evaluates a subschema once for each way that leads to it, so that the number of ways is bounded here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from chronik.errors import ConfigError
from chronik.escaping import escape
from chronik.formats.codec import UnsupportedSchemaError, encode_json
from chronik.formats.json_schema.bundle import SchemaBundle, iter_subschemas
from chronik.formats.json_schema.documents import JsonValue
from chronik.wording import format_install_hint

EVALUATIONS_MAX: Final = 100_000
"""Maximum evaluations of subschemas for a value without lists and objects. References could lead to billions."""

STEPS_MAX: Final = 200_000_000
"""Maximum evaluations of subschemas per value, each of which takes about 0.1 µs."""

PATTERNS_MAX: Final = 1000
"""Maximum number of regular expressions in a schema and its references. Compiling one takes up to 1 ms."""

PATTERN_BYTES_MAX: Final = 256 * 1024
"""Maximum memory in bytes of a compiled regular expression. It also bounds the time of a match."""

NESTING_MAX: Final = 200
"""Maximum nesting depth of lists and objects in a value. Real records have far less."""

MESSAGE_CHARACTERS_MAX: Final = 500

DESCRIBED_STEPS_MAX: Final = 1_000_000
"""Maximum evaluations of subschemas for the description of a violation. Each takes up to 1 kB of memory."""

_IN_PLACE_KEYWORDS: Final = frozenset(
    {"$ref", "allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"}
)
"""Keywords whose schemas apply to the value itself, instead of to its properties or items."""

_MULTIPLYING_KEYWORDS: Final = (_IN_PLACE_KEYWORDS - {"$ref"}) | {"contains", "patternProperties", "propertyNames"}
"""Keywords by which several schemas apply to the same value."""

_UNSUPPORTED_PATTERN: Final = 'is not a "regex"'


class JsonSchemaValidator:
    """A validator of values by one schema."""

    def __init__(self, bundle: SchemaBundle) -> None:
        """Compile a schema.

        Raises:
            UnsupportedSchemaError: The schema is invalid or too complex, or has regular expressions with lookaround.
            ConfigError: jsonschema-rs is not installed.
        """
        try:
            import jsonschema_rs
        except ImportError:
            hint = format_install_hint("schemas")
            raise ConfigError(f"values with a JSON Schema require jsonschema-rs: {hint}") from None
        complexity = _measure(bundle)
        self._evaluations = complexity.evaluations
        if self._evaluations[0] > EVALUATIONS_MAX:
            raise UnsupportedSchemaError("the JSON Schema is too complex: its references lead to too many subschemas")
        nodes = _iter_nodes(bundle)
        if len(_find_patterns(nodes)) > PATTERNS_MAX:
            raise UnsupportedSchemaError(f"the JSON Schema has more than {PATTERNS_MAX:,} regular expressions")
        options = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX)
        try:
            self._validator: Any = jsonschema_rs.validator_for(
                encode_json(bundle.build_document()).decode(),
                validate_formats=False,  # a string of another format is stored as it is
                pattern_options=options,
                offline=True,
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise UnsupportedSchemaError(f"the JSON Schema is not supported: {_describe_schema_error(error)}") from None
        self._error_type: Any = jsonschema_rs.ValidationError
        self._can_multiply = any(not _MULTIPLYING_KEYWORDS.isdisjoint(each) for each in nodes if isinstance(each, dict))
        self._subschemas = complexity.subschemas
        self._is_recursive = complexity.is_recursive
        self.is_valid: Final = self._validator.is_valid
        """A function that returns whether a value is valid. It must not be nested more than NESTING_MAX deep."""

    def find_problem(self, value: JsonValue, size: int) -> str | None:
        """Return why a value is not valid, or None if it is.

        Args:
            value: The value. Its nesting is checked as well.
            size: The length of its text, which has at most half as many values.
        """
        if is_nested_too_deep(value):
            return f"lists and objects are nested more than {NESTING_MAX} deep"
        if not self.is_affordable(size, _measure_depth(value)):
            return f"the value has {size:,} bytes and nested objects: too large for a schema of this complexity"
        if self.is_valid(value):
            return None
        if not self._can_describe(size):
            return "the value does not match the JSON Schema"
        try:
            self._validator.validate(value)
        except self._error_type as raised:
            error: Any = raised
        else:
            return "the value does not match the JSON Schema"
        path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.instance_path)
        problem = f"{path.removeprefix('.')}: {error.message}" if path else str(error.message)
        if len(problem) > MESSAGE_CHARACTERS_MAX:
            problem = problem[: MESSAGE_CHARACTERS_MAX - 3] + "..."
        return escape(problem)  # names of properties may contain line breaks

    def _can_describe(self, size: int) -> bool:
        """Return whether the validator describes a violation in bounded time and memory.

        It does not remember results then, and it lists the violations of all alternatives.
        """
        if not self._can_multiply:
            return True
        return not self._is_recursive and self._subschemas * (size // 2 + 1) <= DESCRIBED_STEPS_MAX

    def is_affordable(self, size: int, depth: int = NESTING_MAX) -> bool:
        """Return whether a value with a nesting depth, whose text has a length, can be validated in bounded time."""
        return self._evaluations[min(depth, len(self._evaluations) - 1)] * (size // 2 + 1) <= STEPS_MAX


def is_nested_too_deep(value: JsonValue) -> bool:
    """Return whether lists and objects are nested more than NESTING_MAX deep."""
    return _measure_depth(value) > NESTING_MAX


def _measure_depth(value: JsonValue) -> int:
    """Return the nesting depth of lists and objects, at most NESTING_MAX + 1."""
    level = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level and depth <= NESTING_MAX:
        depth += 1
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
    return depth


def _describe_schema_error(error: Exception) -> str:
    problem = str(getattr(error, "message", error)).partition("\n")[0]
    if _UNSUPPORTED_PATTERN in problem:
        pattern = problem.partition(_UNSUPPORTED_PATTERN)[0].strip()
        problem = f"the regular expression {pattern} is invalid, too large, or has lookaround or back-references"
    return problem[:MESSAGE_CHARACTERS_MAX]


def _iter_nodes(bundle: SchemaBundle) -> list[JsonValue]:
    """Return all subschemas of a bundle."""
    nodes = [bundle.root, *bundle.definitions]
    for each in nodes:  # grows
        nodes += [child for _, child in iter_subschemas(each)]
    return nodes


def _find_patterns(nodes: list[JsonValue]) -> set[str]:
    patterns: set[str] = set()
    for node in nodes:
        if isinstance(node, dict):
            patterns.update(each for each in (node.get("pattern"),) if isinstance(each, str))
            patterns.update(node.get("patternProperties", ()))
    return patterns


class _Complexity(NamedTuple):
    """The numbers of subschemas that are evaluated for a value."""

    evaluations: list[int]
    """The maximum for a value without lists and with one property per object, by its nesting depth. The last one is
    also that of values that are nested deeper. Numbers beyond STEPS_MAX are not exact."""
    subschemas: int
    """The total, with each subschema counted for each reference to it; at most DESCRIBED_STEPS_MAX + 1."""
    is_recursive: bool


def _measure(bundle: SchemaBundle) -> _Complexity:
    """Measure the complexity of a schema.

    The validator remembers the results of a schema for references from within it, but not for other references.
    """
    order, edges, is_recursive = _list_edges(bundle)
    subschemas: dict[int, int] = {}
    for key in order:
        total = 1 + sum(subschemas.get(child, 1) for _, child in edges[key])
        subschemas[key] = min(total, DESCRIBED_STEPS_MAX + 1)
    evaluations: list[int] = []
    previous: dict[int, int] = {}
    for depth in range(NESTING_MAX + 1):
        counts: dict[int, int] = {}
        for key in order:
            total, largest = 1, 0
            for keyword, child in edges[key]:
                if keyword in _IN_PLACE_KEYWORDS:
                    total += counts.get(child, 1)
                elif keyword == "properties":
                    largest = max(largest, previous.get(child, 0))
                else:
                    total += previous.get(child, 0)
            counts[key] = min(total + largest, STEPS_MAX + 1)
        evaluations.append(counts[order[-1]])
        if counts == previous or evaluations[depth] > STEPS_MAX:
            break
        previous = counts
    return _Complexity(evaluations, subschemas[order[-1]], is_recursive)


def _list_edges(bundle: SchemaBundle) -> tuple[list[int], dict[int, list[tuple[str, int]]], bool]:
    """List the schemas to which each schema leads, by identity, without those within which it is.

    Returns:
        The schemas, each after those to which it leads; the schemas to which each leads; whether any is within itself.
    """
    order: list[int] = []
    edges: dict[int, list[tuple[str, int]]] = {}
    active: set[int] = set()
    is_recursive = False
    stack: list[tuple[JsonValue, Iterator[tuple[str, JsonValue]]]] = []

    def enter(node: JsonValue) -> None:
        edges[id(node)] = []
        active.add(id(node))
        children = iter_subschemas(node)
        target = None if not isinstance(node, dict) else bundle.find_target(node)
        stack.append((node, chain(children, () if target is None else [("$ref", target)])))

    enter(bundle.root)
    while stack:
        node, children = stack[-1]
        for keyword, child in children:
            if not isinstance(child, dict):
                continue
            if id(child) in active:
                is_recursive = True
                continue
            edges[id(node)].append((keyword, id(child)))
            if id(child) not in edges:
                enter(child)
                break
        else:
            stack.pop()
            active.discard(id(node))
            order.append(id(node))
    return order, edges, is_recursive
