"""Validation of values by a JSON Schema, in bounded time.

The validator is jsonschema-rs: compiled, with exact numbers, and with a regular-expression engine whose time is linear.
It evaluates a subschema once for each way that leads to it, so that the number of ways is bounded here.
"""

from __future__ import annotations

from typing import Any, Final

from chronik.errors import ConfigError
from chronik.formats.codec import UnsupportedSchemaError, encode_json
from chronik.formats.json_schema.bundle import SchemaBundle, iter_subschemas
from chronik.formats.json_schema.documents import JsonValue
from chronik.wording import format_install_hint

EVALUATIONS_MAX: Final = 100_000
"""Maximum evaluations of subschemas per part of a value. References to references could lead to billions."""

STEPS_MAX: Final = 100_000_000
"""Maximum evaluations of subschemas per value, each of which takes about 0.1 µs."""

PATTERNS_MAX: Final = 1000
"""Maximum number of regular expressions in a schema and its references. Compiling one takes up to 1 ms."""

PATTERN_BYTES_MAX: Final = 256 * 1024
"""Maximum memory in bytes of a compiled regular expression. It also bounds the time of a match."""

NESTING_MAX: Final = 200
"""Maximum nesting depth of lists and objects in a value. Real records have far less."""

MESSAGE_CHARACTERS_MAX: Final = 500

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
        self._evaluations = _count_evaluations(bundle)
        if self._evaluations > EVALUATIONS_MAX:
            raise UnsupportedSchemaError("the JSON Schema is too complex: its references lead to too many subschemas")
        if len(_find_patterns(bundle)) > PATTERNS_MAX:
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
        if not self.is_affordable(size):
            return f"the value has {size:,} bytes, which is too large for a schema of this complexity"
        if self.is_valid(value):
            return None
        error = next(iter(self._validator.iter_errors(value)))
        path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.instance_path)
        problem = f"{path.removeprefix('.')}: {error.message}" if path else str(error.message)
        return problem if len(problem) <= MESSAGE_CHARACTERS_MAX else problem[: MESSAGE_CHARACTERS_MAX - 3] + "..."

    def is_affordable(self, size: int) -> bool:
        """Return whether a value whose text has a length can be validated in bounded time."""
        return self._evaluations * (size // 2 + 1) <= STEPS_MAX


def is_nested_too_deep(value: JsonValue) -> bool:
    """Return whether lists and objects are nested more than NESTING_MAX deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(NESTING_MAX):
        if not level:
            return False
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
    return bool(level)


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


def _find_patterns(bundle: SchemaBundle) -> set[str]:
    patterns: set[str] = set()
    for node in _iter_nodes(bundle):
        if isinstance(node, dict):
            patterns.update(each for each in (node.get("pattern"),) if isinstance(each, str))
            patterns.update(node.get("patternProperties", ()))
    return patterns


def _count_evaluations(bundle: SchemaBundle) -> int:
    """Return how many subschemas are evaluated at most for a value without lists and with one property per object.

    A schema that refers to itself is counted once: the validator remembers the results of those.
    """
    counts: dict[int, int] = {}
    active: set[int] = set()
    stack = [bundle.root]
    while stack:
        node = stack[-1]
        if id(node) in counts or not isinstance(node, dict):
            stack.pop()
            continue
        children = list(iter_subschemas(node))
        target = bundle.find_target(node)
        if target is not None:
            children.append(("$ref", target))
        pending = [
            child
            for _, child in children
            if isinstance(child, dict) and id(child) not in counts and id(child) not in active
        ]
        if pending and id(node) not in active:
            active.add(id(node))
            stack += pending
            continue
        stack.pop()
        active.discard(id(node))
        total, largest = 1, 0
        for keyword, child in children:
            count = counts.get(id(child), 1)
            if keyword == "properties":
                largest = max(largest, count)
            else:
                total += count
        counts[id(node)] = min(total + largest, EVALUATIONS_MAX + 1)
    return counts.get(id(bundle.root), 1)
