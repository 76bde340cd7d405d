"""Compatibility of JSON Schemas, by the rules of Confluent's registry.

A difference is a change from the writer's schema to the reader's. Each pair of subschemas is compared once, however
often it occurs. A pair that is reached while it is being compared counts as compatible; if it turns out to
be incompatible, the comparison is repeated with its differences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any, Final, NamedTuple, TypeAlias

from chronik.linear_regex import Pattern, PatternError
from chronik.registry.json_schema.differences import COMPATIBLE, JsonDifference
from chronik.registry.json_schema.differences import JsonDifferenceType as T
from chronik.registry.json_schema.nodes import (
    ArrayNode,
    CombinedNode,
    ConstNode,
    Criterion,
    EnumNode,
    FalseNode,
    MetaschemaNode,
    NotNode,
    NumberNode,
    ObjectTypeNode,
    SchemaNode,
    Signatures,
    StringNode,
    follow_references,
)
from chronik.registry.schema import InvalidSchemaError

STEPS_MAX: Final = 300_000
"""Maximum steps of a comparison, each of which takes about 3 µs: a pair of subschemas, or a difference."""

DIFFERENCES_MAX: Final = 500
"""Maximum differences of a pair of subschemas. They are repeated for each reference to it: their number may grow
exponentially."""

MESSAGES_CHARACTERS_MAX: Final = 1_000_000
"""Maximum total length of the messages of a comparison. Each contains a path, whose names may be long."""

Path: TypeAlias = tuple[str, ...]


class _Change(NamedTuple):
    """A difference with its path from the pair of subschemas that is being compared."""

    type: T
    path: Path = ()

    @property
    def is_compatible(self) -> bool:
        return self.type in COMPATIBLE


_Pair: TypeAlias = tuple[SchemaNode, SchemaNode]
_Key: TypeAlias = tuple[int, int]
_Changes: TypeAlias = Sequence[_Change]
_Comparison: TypeAlias = Generator[_Pair, _Changes, list[_Change]]
"""A comparison of two schemas. It yields the pairs of subschemas whose changes it needs."""


def compare(writer: SchemaNode, reader: SchemaNode) -> list[JsonDifference]:
    """Return the differences between two schemas.

    Raises:
        InvalidSchemaError: The comparison would take too many steps.
    """
    changes = _Comparer().compare(writer, reader)
    return [JsonDifference(change.type, "#/" + "/".join(change.path)) for change in changes]


def find_incompatibilities(writer: SchemaNode, reader: SchemaNode) -> list[str]:
    """Return the messages of the incompatible differences.

    Raises:
        InvalidSchemaError: The comparison would take too many steps.
    """
    messages: list[str] = []
    characters = 0
    for difference in compare(writer, reader):
        if not difference.is_compatible and (characters < MESSAGES_CHARACTERS_MAX or not messages):
            messages.append(difference.message)
            characters += len(messages[-1])
    return messages


class _Comparer:
    """The state of a comparison of two schemas."""

    def __init__(self) -> None:
        self._steps_left = STEPS_MAX
        self._signatures = Signatures()
        self._keys = Signatures(has_targets=True)
        self._patterns: dict[str, Pattern] = {}

    def compare(self, writer: SchemaNode, reader: SchemaNode) -> _Changes:
        root = (follow_references(writer), follow_references(reader))
        known: dict[_Key, _Changes] = {}
        while True:
            results, has_assumed = self._run(root, known)
            incompatible = {key: changes for key, changes in results.items() if not _are_compatible(changes)}
            if not has_assumed or incompatible.keys() == known.keys():
                return results[self._get_key(root)]
            known = incompatible

    def _run(self, root: _Pair, known: dict[_Key, _Changes]) -> tuple[dict[_Key, _Changes], bool]:
        """Compare all pairs that are reached from the root.

        Recursive schemas nest comparisons deeply, so that the stack of comparisons is a list.

        Args:
            root: The schemas.
            known: The changes of the pairs that an earlier run found to be incompatible.

        Returns:
            The changes of each pair, and whether any pair was assumed to be compatible while it was being compared.
        """
        results: dict[_Key, _Changes] = {}
        active = {self._get_key(root)}
        has_assumed = False
        stack = [(self._get_key(root), self._compare_pair(*root))]
        changes: _Changes | None = None  # the first value that a generator receives must be None
        while stack:
            key, comparison = stack[-1]
            try:
                pair = next(comparison) if changes is None else comparison.send(changes)
            except StopIteration as stop:
                stack.pop()
                active.remove(key)
                changes = results[key] = self._limit(stop.value)
                continue
            self.take()
            pair = (follow_references(pair[0]), follow_references(pair[1]))
            key = self._get_key(pair)
            if key in results:
                changes = results[key]
            elif key in active:
                has_assumed = has_assumed or key not in known
                changes = known.get(key, ())
            else:
                active.add(key)
                stack.append((key, self._compare_pair(*pair)))
                changes = None
        return results, has_assumed

    def _get_key(self, pair: _Pair) -> _Key:
        """Return a key that is equal for pairs of equal subschemas, such as unions that are repeated."""
        return self._keys.get(pair[0]), self._keys.get(pair[1])

    def take(self, steps: int = 1) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise InvalidSchemaError("The schemas are too complex to compare")

    def _limit(self, changes: list[_Change]) -> list[_Change]:
        if len(changes) > DIFFERENCES_MAX:
            changes.sort(key=lambda change: change.is_compatible)
            del changes[DIFFERENCES_MAX:]
        return changes

    def _rebase(self, changes: _Changes, *path: str) -> Iterable[_Change]:
        """Return changes with paths that begin further up."""
        self.take(sum(8 + len(change.path) for change in changes) // 64)
        return [_Change(change.type, (*path, *change.path)) for change in changes] if path else changes

    def _compare_pair(self, writer: SchemaNode, reader: SchemaNode) -> _Comparison:
        found = yield from self._compare_unwrapped(writer, reader)
        if found is not None:
            return found
        if type(writer) is not type(reader):
            if isinstance(writer, FalseNode) or reader.accepts_everything:
                return []
            if writer.connect_type == reader.connect_type == "bytes":
                return []  # Connect's decimals were strings in earlier versions, and are numbers now
            return [_Change(T.TYPE_CHANGED)]
        changes = [
            _Change(change)
            for attribute, change in _ANNOTATIONS.items()
            if getattr(writer, attribute) != getattr(reader, attribute)
        ]
        match writer, reader:
            case StringNode(), StringNode():
                _compare_bounds(changes, writer, reader, _STRING_BOUNDS)
                _compare_patterns(changes, writer.pattern, reader.pattern)
            case NumberNode(), NumberNode():
                _compare_numbers(changes, writer, reader)
            case ConstNode(), ConstNode():
                if writer.value != reader.value:
                    changes.append(_Change(T.ENUM_ARRAY_CHANGED, ("const",)))
            case EnumNode(), EnumNode():
                _compare_sets(changes, writer.values, reader.values, _ENUM_CHANGES, "enum")
            case CombinedNode(), CombinedNode():
                changes += yield from self._compare_combined(writer, reader)
            case NotNode(), NotNode():
                # A value that the reader's subschema accepts must not be one that the writer's rejects.
                reverse = yield reader.schema, writer.schema
                change = T.NOT_TYPE_NARROWED if _are_compatible(reverse) else T.NOT_TYPE_EXTENDED
                changes.append(_Change(change, ("not",)))
            case ObjectTypeNode(), ObjectTypeNode():
                yield from self._compare_objects(changes, writer, reader)
            case ArrayNode(), ArrayNode():
                yield from self._compare_arrays(changes, writer, reader)
            case MetaschemaNode(), MetaschemaNode():
                if writer.draft is not reader.draft:
                    changes.append(_Change(T.TYPE_CHANGED))
        return changes

    def _compare_unwrapped(
        self, writer: SchemaNode, reader: SchemaNode
    ) -> Generator[_Pair, _Changes, list[_Change] | None]:
        """Compare a schema with the subschemas of a combined one. Return None unless one of them is compatible."""
        match writer, reader:
            case CombinedNode(), CombinedNode():
                return None
            case _, CombinedNode():
                subschemas = _sort_subschemas(reader)
                is_eligible = reader.criterion is not Criterion.ALL
                change = T.SUM_TYPE_EXTENDED
                pairs = [(writer, each) for each in subschemas]
            case CombinedNode(), _:
                subschemas = _sort_subschemas(writer)
                is_eligible = writer.criterion is Criterion.ALL
                change = T.PRODUCT_TYPE_NARROWED
                pairs = [(each, reader) for each in subschemas]
            case _:
                return None
        if len(pairs) != 1 and not is_eligible:
            return None
        for pair in pairs:
            changes = yield pair
            if _are_compatible(changes):
                return [*self._rebase(changes), *([_Change(change)] if len(pairs) != 1 else ())]
        return None

    def _compare_combined(self, writer: CombinedNode, reader: CombinedNode) -> _Comparison:
        changes = []
        if writer.criterion is not reader.criterion:
            change = _compare_criteria(writer, reader)
            changes.append(_Change(change))
            if change is T.COMBINED_TYPE_CHANGED:
                return changes
        written = self._get_distinct_subschemas(writer)
        read = self._get_distinct_subschemas(reader)
        if len(written) < len(read):
            is_product = reader.criterion is Criterion.ALL
            changes.append(_Change(T.PRODUCT_TYPE_EXTENDED if is_product else T.SUM_TYPE_EXTENDED))
        elif len(written) > len(read):
            is_product = writer.criterion is Criterion.ALL
            changes.append(_Change(T.PRODUCT_TYPE_NARROWED if is_product else T.SUM_TYPE_NARROWED))
        edges: list[dict[int, _Changes]] = []
        for each in written:
            edges.append({})
            for index, other in enumerate(read):
                found = yield each, other
                if _are_compatible(found):
                    edges[-1][index] = found
        matching = self._match(edges)
        for index, other_index in enumerate(matching):
            if other_index is not None:
                changes += self._rebase(edges[index][other_index], writer.criterion.value, str(index))
        if len(matching) - matching.count(None) < min(len(written), len(read)):
            changes.append(_Change(T.COMBINED_TYPE_SUBSCHEMAS_CHANGED))
        return changes

    def _get_distinct_subschemas(self, node: CombinedNode) -> list[SchemaNode]:
        distinct: dict[int, SchemaNode] = {}
        for each in _sort_subschemas(node):
            distinct.setdefault(self._signatures.get(each), each)
        return list(distinct.values())

    def _match(self, edges: Sequence[dict[int, Any]]) -> list[int | None]:
        """Return a maximum matching of a bipartite graph: the right vertex for each left one.

        Args:
            edges: The right vertices that are adjacent to each left vertex.
        """
        rights: list[int | None] = [None] * len(edges)
        lefts: dict[int, int] = {}
        for start in range(len(edges)):
            queue = deque([start])
            previous: dict[int, int] = {}  # the left vertex from which a right one was reached
            end = None
            while queue and end is None:
                left = queue.popleft()
                for right in edges[left]:
                    self.take()
                    if right in previous:
                        continue
                    previous[right] = left
                    if right not in lefts:
                        end = right
                        break
                    queue.append(lefts[right])
            while end is not None:  # swap the edges of the augmenting path
                left = previous[end]
                lefts[end] = left
                rights[left], end = end, rights[left]
        return rights

    def _compare_objects(
        self, changes: list[_Change], writer: ObjectTypeNode, reader: ObjectTypeNode
    ) -> Generator[_Pair, _Changes, None]:
        self.take(len(writer.properties) + len(reader.properties))
        for name in writer.properties.keys() & reader.properties.keys():
            if name in writer.required and name not in reader.required:
                changes.append(_Change(T.REQUIRED_ATTRIBUTE_REMOVED, ("required", name)))
            elif name not in writer.required and name in reader.required:
                has_default = reader.properties[name].has_default
                change = T.REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED if has_default else T.REQUIRED_ATTRIBUTE_ADDED
                changes.append(_Change(change, ("required", name)))
        for name in [*writer.properties, *(name for name in reader.properties if name not in writer.properties)]:
            path = ("properties", name)
            if name not in reader.properties:
                changes += self._rebase((yield from self._compare_removed_property(name, writer, reader)), *path)
            elif name not in writer.properties:
                changes += self._rebase((yield from self._compare_added_property(name, writer, reader)), *path)
            else:
                changes += self._rebase((yield writer.properties[name], reader.properties[name]), *path)
        yield from self._compare_dependencies(changes, writer, reader)
        yield from self._compare_additional(changes, writer, reader, _ADDITIONAL_PROPERTIES, "additionalProperties")
        yield from self._compare_unevaluated(changes, writer, reader, _UNEVALUATED_PROPERTIES, "unevaluatedProperties")
        _compare_bounds(changes, writer, reader, _OBJECT_BOUNDS)

    def _compare_removed_property(self, name: str, writer: ObjectTypeNode, reader: ObjectTypeNode) -> _Comparison:
        if _is_open(reader):
            return [_Change(T.PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL)]
        written = writer.properties[name]
        other = self._find_other_schema(name, reader)
        if other is not None:
            found = yield written, other
            is_covered = _are_compatible(found)
            change = (
                T.PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
                if is_covered
                else T.PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
            )
            return [*self._rebase(found), _Change(change)]
        if isinstance(written, FalseNode):
            return [_Change(T.PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL)]
        return [_Change(T.PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL)]

    def _compare_added_property(self, name: str, writer: ObjectTypeNode, reader: ObjectTypeNode) -> _Comparison:
        read = reader.properties[name]
        is_required = name in reader.required
        if _is_open(writer):
            if read.accepts_everything:
                return [_Change(T.PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL)]
            if not is_required:
                return [_Change(T.OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL)]
            if read.has_default:
                return [_Change(T.REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL)]
            return [_Change(T.REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL)]
        changes: list[_Change] = []
        other = self._find_other_schema(name, writer)
        if other is not None:
            found = yield other, read
            is_covered = _are_compatible(found)
            change = (
                T.PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
                if is_covered
                else T.PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
            )
            changes += [*self._rebase(found), _Change(change)]
        if not is_required:
            changes.append(_Change(T.OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL))
        elif read.has_default:
            changes.append(_Change(T.REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL))
        else:
            changes.append(_Change(T.REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL))
        return changes

    def _find_other_schema(self, name: str, node: ObjectTypeNode) -> SchemaNode | None:
        """Return the schema of a property that is not listed, or None if the property is forbidden or unrestricted."""
        for expression, schema in node.patterns.items():
            self.take(1 + len(name))
            if self._get_pattern(expression).occurs_in(name):
                return schema
        return _get_remaining_schema(node)

    def _get_pattern(self, expression: str) -> Pattern:
        pattern = self._patterns.get(expression)
        if pattern is None:
            self.take(100)
            try:
                pattern = self._patterns[expression] = Pattern(expression)
            except PatternError as error:
                raise InvalidSchemaError(
                    f"The schemas cannot be compared, because the regular expression {expression[:100]!r} is not "
                    f"supported: {error}"
                ) from None
        return pattern

    def _compare_dependencies(
        self, changes: list[_Change], writer: ObjectTypeNode, reader: ObjectTypeNode
    ) -> Generator[_Pair, _Changes, None]:
        for name in _merge_keys(writer.required_dependencies, reader.required_dependencies):
            written, read = writer.required_dependencies.get(name), reader.required_dependencies.get(name)
            if read is None:
                changes.append(_Change(T.DEPENDENCY_ARRAY_REMOVED, ("dependencies", name)))
            elif written is None:
                changes.append(_Change(T.DEPENDENCY_ARRAY_ADDED, ("dependencies", name)))
            else:
                _compare_sets(changes, written, read, _DEPENDENCY_CHANGES, "dependencies", name)
        for name in _merge_keys(writer.schema_dependencies, reader.schema_dependencies):
            path = ("dependencies", name)
            if name not in reader.schema_dependencies:
                changes.append(_Change(T.DEPENDENCY_SCHEMA_REMOVED, path))
            elif name not in writer.schema_dependencies:
                changes.append(_Change(T.DEPENDENCY_SCHEMA_ADDED, path))
            else:
                found = yield writer.schema_dependencies[name], reader.schema_dependencies[name]
                changes += self._rebase(found, *path)

    def _compare_arrays(
        self, changes: list[_Change], writer: ArrayNode, reader: ArrayNode
    ) -> Generator[_Pair, _Changes, None]:
        if writer.items is None and reader.items is not None:
            changes.append(_Change(T.SCHEMA_ADDED, ("items",)))
        elif writer.items is not None and reader.items is None:
            changes.append(_Change(T.SCHEMA_REMOVED, ("items",)))
        elif writer.items is not None and reader.items is not None:
            changes += self._rebase((yield writer.items, reader.items), "items")
        for index in range(max(len(writer.prefix_items), len(reader.prefix_items))):
            if index >= len(reader.prefix_items):
                found = yield from self._compare_removed_item(writer.prefix_items[index], reader)
            elif index >= len(writer.prefix_items):
                found = yield from self._compare_added_item(reader.prefix_items[index], writer)
            else:
                found = list((yield writer.prefix_items[index], reader.prefix_items[index]))
            changes += self._rebase(found, "items", str(index))
        yield from self._compare_additional(changes, writer, reader, _ADDITIONAL_ITEMS, "additionalItems")
        yield from self._compare_unevaluated(changes, writer, reader, _UNEVALUATED_ITEMS, "unevaluatedItems")
        _compare_bounds(changes, writer, reader, _ARRAY_BOUNDS)
        if writer.is_unique != reader.is_unique:
            change = T.UNIQUE_ITEMS_REMOVED if writer.is_unique else T.UNIQUE_ITEMS_ADDED
            changes.append(_Change(change, ("uniqueItems",)))
        _compare_bounds(changes, writer, reader, _CONTAINS_BOUNDS)

    def _compare_removed_item(self, written: SchemaNode, reader: ArrayNode) -> _Comparison:
        if _is_open(reader):
            return [_Change(T.ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL)]
        other = _get_remaining_schema(reader)
        if other is not None:
            found = yield written, other
            is_covered = _are_compatible(found)
            change = (
                T.ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
                if is_covered
                else T.ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
            )
            return [*self._rebase(found), _Change(change)]
        if isinstance(written, FalseNode):
            return [_Change(T.ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL)]
        return [_Change(T.ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL)]

    def _compare_added_item(self, read: SchemaNode, writer: ArrayNode) -> _Comparison:
        if _is_open(writer):
            is_harmless = read.accepts_everything
            return [
                _Change(
                    T.ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
                    if is_harmless
                    else T.ITEM_ADDED_TO_OPEN_CONTENT_MODEL
                )
            ]
        other = _get_remaining_schema(writer)
        if other is None:
            return [_Change(T.ITEM_ADDED_TO_CLOSED_CONTENT_MODEL)]
        found = yield other, read
        is_covered = _are_compatible(found)
        change = (
            T.ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
            if is_covered
            else T.ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
        )
        return [*self._rebase(found), _Change(change)]

    def _compare_additional(
        self, changes: list[_Change], writer: _Container, reader: _Container, types: _RemainderChanges, path: str
    ) -> Generator[_Pair, _Changes, None]:
        """Compare `additionalProperties` or `additionalItems`."""
        if writer.allows_additional != reader.allows_additional:
            changes.append(_Change(types.added if reader.allows_additional else types.removed, (path,)))
        elif writer.additional is None and reader.additional is not None:
            changes.append(_Change(types.narrowed, (path,)))
        elif writer.additional is not None and reader.additional is None:
            changes.append(_Change(types.extended, (path,)))
        elif writer.additional is not None and reader.additional is not None:
            changes += self._rebase((yield writer.additional, reader.additional), path)

    def _compare_unevaluated(
        self, changes: list[_Change], writer: _Container, reader: _Container, types: _RemainderChanges, path: str
    ) -> Generator[_Pair, _Changes, None]:
        """Compare `unevaluatedProperties` or `unevaluatedItems`."""
        written, read = writer.unevaluated, reader.unevaluated
        is_forbidden = isinstance(written, FalseNode), isinstance(read, FalseNode)
        if is_forbidden[0] != is_forbidden[1]:
            changes.append(_Change(types.added if is_forbidden[0] else types.removed, (path,)))
        elif written is None or read is None:
            if written is not read:
                changes.append(_Change(types.narrowed if written is None else types.extended, (path,)))
        elif written.accepts_everything != read.accepts_everything:
            changes.append(_Change(types.narrowed if written.accepts_everything else types.extended, (path,)))
        else:
            changes += self._rebase((yield written, read), path)


_Container: TypeAlias = ArrayNode | ObjectTypeNode


class _RemainderChanges(NamedTuple):
    """The types of differences of `additional…` or `unevaluated…` keywords."""

    added: T
    removed: T
    extended: T
    narrowed: T


class _BoundChanges(NamedTuple):
    """The types of differences of a keyword with a number."""

    attribute: str
    keyword: str
    added: T
    removed: T
    increased: T
    decreased: T


def _create_bound(attribute: str, keyword: str) -> _BoundChanges:
    prefix = attribute.upper()
    types = (T[f"{prefix}_{suffix}"] for suffix in ("ADDED", "REMOVED", "INCREASED", "DECREASED"))
    return _BoundChanges(attribute, keyword, *types)


_ANNOTATIONS: Final = {
    "id": T.ID_CHANGED,
    "title": T.TITLE_CHANGED,
    "description": T.DESCRIPTION_CHANGED,
    "default": T.DEFAULT_CHANGED,
}
_STRING_BOUNDS: Final = (_create_bound("max_length", "maxLength"), _create_bound("min_length", "minLength"))
_NUMBER_BOUNDS: Final = (
    _create_bound("maximum", "maximum"),
    _create_bound("minimum", "minimum"),
    _create_bound("exclusive_maximum", "exclusiveMaximum"),
    _create_bound("exclusive_minimum", "exclusiveMinimum"),
)
_OBJECT_BOUNDS: Final = (
    _create_bound("max_properties", "maxProperties"),
    _create_bound("min_properties", "minProperties"),
)
_ARRAY_BOUNDS: Final = (_create_bound("max_items", "maxItems"), _create_bound("min_items", "minItems"))
_CONTAINS_BOUNDS: Final = (_create_bound("max_contains", "maxContains"), _create_bound("min_contains", "minContains"))
_ADDITIONAL_PROPERTIES: Final = _RemainderChanges(
    T.ADDITIONAL_PROPERTIES_ADDED,
    T.ADDITIONAL_PROPERTIES_REMOVED,
    T.ADDITIONAL_PROPERTIES_EXTENDED,
    T.ADDITIONAL_PROPERTIES_NARROWED,
)
_UNEVALUATED_PROPERTIES: Final = _RemainderChanges(
    T.UNEVALUATED_PROPERTIES_ADDED,
    T.UNEVALUATED_PROPERTIES_REMOVED,
    T.UNEVALUATED_PROPERTIES_EXTENDED,
    T.UNEVALUATED_PROPERTIES_NARROWED,
)
_ADDITIONAL_ITEMS: Final = _RemainderChanges(
    T.ADDITIONAL_ITEMS_ADDED, T.ADDITIONAL_ITEMS_REMOVED, T.ADDITIONAL_ITEMS_EXTENDED, T.ADDITIONAL_ITEMS_NARROWED
)
_UNEVALUATED_ITEMS: Final = _RemainderChanges(
    T.UNEVALUATED_ITEMS_ADDED, T.UNEVALUATED_ITEMS_REMOVED, T.UNEVALUATED_ITEMS_EXTENDED, T.UNEVALUATED_ITEMS_NARROWED
)
_ENUM_CHANGES: Final = (T.ENUM_ARRAY_EXTENDED, T.ENUM_ARRAY_NARROWED, T.ENUM_ARRAY_CHANGED)
_DEPENDENCY_CHANGES: Final = (T.DEPENDENCY_ARRAY_EXTENDED, T.DEPENDENCY_ARRAY_NARROWED, T.DEPENDENCY_ARRAY_CHANGED)

_DIVISION: Final = Context(prec=1000, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""The precision of remainders. The quotient of two numbers with more digits counts as no integer."""


def _are_compatible(changes: Iterable[_Change]) -> bool:
    return all(change.type in COMPATIBLE for change in changes)


def _merge_keys(first: Iterable[str], second: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys([*first, *second])


def _sort_subschemas(node: CombinedNode) -> list[SchemaNode]:
    """Return the subschemas of a combined schema in Confluent's order: combined ones first."""
    return sorted(node.subschemas, key=lambda each: not isinstance(each, CombinedNode))


def _compare_criteria(writer: CombinedNode, reader: CombinedNode) -> T:
    """Return the type of difference between two criteria."""
    is_single_writer, is_single_reader = len(writer.subschemas) == 1, len(reader.subschemas) == 1
    is_extended = (
        reader.criterion is Criterion.ANY
        or (is_single_writer and (is_single_reader or reader.criterion is Criterion.ONE))
        or (is_single_reader and writer.criterion is Criterion.ALL)
    )
    return T.COMBINED_TYPE_EXTENDED if is_extended else T.COMBINED_TYPE_CHANGED


def _is_open(node: _Container) -> bool:
    """Return whether an object or array may have any other properties or items."""
    is_unrestricted = node.unevaluated is None or node.unevaluated.accepts_everything
    has_patterns = isinstance(node, ObjectTypeNode) and bool(node.patterns)
    return node.allows_additional and node.additional is None and is_unrestricted and not has_patterns


def _get_remaining_schema(node: _Container) -> SchemaNode | None:
    """Return the schema of all other properties or items, or None if they are forbidden or unrestricted."""
    if node.additional is not None or not node.allows_additional:
        return node.additional
    unevaluated = node.unevaluated
    if unevaluated is None or isinstance(unevaluated, FalseNode) or unevaluated.accepts_everything:
        return None
    return unevaluated


def _compare_sets(
    changes: list[_Change], written: frozenset[Any], read: frozenset[Any], types: tuple[T, T, T], *path: str
) -> None:
    extended, narrowed, changed = types
    if written != read:
        changes.append(_Change(extended if written < read else narrowed if written > read else changed, path))


def _compare_bounds(
    changes: list[_Change], writer: SchemaNode, reader: SchemaNode, bounds: Iterable[_BoundChanges]
) -> None:
    for bound in bounds:
        written, read = getattr(writer, bound.attribute), getattr(reader, bound.attribute)
        if written == read:
            continue
        if written is None:
            change = bound.added
        elif read is None:
            change = bound.removed
        else:
            change = bound.increased if written < read else bound.decreased
        changes.append(_Change(change, (bound.keyword,)))


def _compare_patterns(changes: list[_Change], written: str | None, read: str | None) -> None:
    if written != read:
        change = T.PATTERN_ADDED if written is None else T.PATTERN_REMOVED if read is None else T.PATTERN_CHANGED
        changes.append(_Change(change, ("pattern",)))


def _compare_numbers(changes: list[_Change], writer: NumberNode, reader: NumberNode) -> None:
    _compare_bounds(changes, writer, reader, _NUMBER_BOUNDS)
    written, read = writer.multiple_of, reader.multiple_of
    if written != read:
        if written is None:
            change = T.MULTIPLE_OF_ADDED
        elif read is None:
            change = T.MULTIPLE_OF_REMOVED
        elif _is_multiple(read, written):
            change = T.MULTIPLE_OF_EXPANDED
        else:
            change = T.MULTIPLE_OF_REDUCED if _is_multiple(written, read) else T.MULTIPLE_OF_CHANGED
        changes.append(_Change(change, ("multipleOf",)))
    if writer.is_integer != reader.is_integer:
        changes.append(_Change(T.TYPE_EXTENDED if writer.is_integer else T.TYPE_NARROWED))


def _is_multiple(number: int | Decimal, divisor: int | Decimal) -> bool:
    try:
        return _DIVISION.remainder(Decimal(number), Decimal(divisor)) == 0
    except InvalidOperation:
        return False
