"""The differences between two JSON Schemas: their types, which of them are compatible, and their messages.

The types and the messages are those of Confluent's registry, which clients show and tools parse.
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Final, NamedTuple


class JsonDifferenceType(StrEnum):
    """A kind of change from the writer's schema to the reader's, by its name in Confluent's messages."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name

    ID_CHANGED = auto()
    DESCRIPTION_CHANGED = auto()
    TITLE_CHANGED = auto()
    DEFAULT_CHANGED = auto()
    SCHEMA_ADDED = auto()
    SCHEMA_REMOVED = auto()
    TYPE_EXTENDED = auto()
    TYPE_NARROWED = auto()
    TYPE_CHANGED = auto()

    MAX_LENGTH_ADDED = auto()
    MAX_LENGTH_REMOVED = auto()
    MAX_LENGTH_INCREASED = auto()
    MAX_LENGTH_DECREASED = auto()
    MIN_LENGTH_ADDED = auto()
    MIN_LENGTH_REMOVED = auto()
    MIN_LENGTH_INCREASED = auto()
    MIN_LENGTH_DECREASED = auto()
    PATTERN_ADDED = auto()
    PATTERN_REMOVED = auto()
    PATTERN_CHANGED = auto()

    MAXIMUM_ADDED = auto()
    MAXIMUM_REMOVED = auto()
    MAXIMUM_INCREASED = auto()
    MAXIMUM_DECREASED = auto()
    MINIMUM_ADDED = auto()
    MINIMUM_REMOVED = auto()
    MINIMUM_INCREASED = auto()
    MINIMUM_DECREASED = auto()
    EXCLUSIVE_MAXIMUM_ADDED = auto()
    EXCLUSIVE_MAXIMUM_REMOVED = auto()
    EXCLUSIVE_MAXIMUM_INCREASED = auto()
    EXCLUSIVE_MAXIMUM_DECREASED = auto()
    EXCLUSIVE_MINIMUM_ADDED = auto()
    EXCLUSIVE_MINIMUM_REMOVED = auto()
    EXCLUSIVE_MINIMUM_INCREASED = auto()
    EXCLUSIVE_MINIMUM_DECREASED = auto()
    MULTIPLE_OF_ADDED = auto()
    MULTIPLE_OF_REMOVED = auto()
    MULTIPLE_OF_EXPANDED = auto()
    MULTIPLE_OF_REDUCED = auto()
    MULTIPLE_OF_CHANGED = auto()

    REQUIRED_ATTRIBUTE_ADDED = auto()
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED = auto()
    REQUIRED_ATTRIBUTE_REMOVED = auto()
    MAX_PROPERTIES_ADDED = auto()
    MAX_PROPERTIES_REMOVED = auto()
    MAX_PROPERTIES_INCREASED = auto()
    MAX_PROPERTIES_DECREASED = auto()
    MIN_PROPERTIES_ADDED = auto()
    MIN_PROPERTIES_REMOVED = auto()
    MIN_PROPERTIES_INCREASED = auto()
    MIN_PROPERTIES_DECREASED = auto()
    ADDITIONAL_PROPERTIES_ADDED = auto()
    ADDITIONAL_PROPERTIES_REMOVED = auto()
    ADDITIONAL_PROPERTIES_EXTENDED = auto()
    ADDITIONAL_PROPERTIES_NARROWED = auto()
    UNEVALUATED_PROPERTIES_ADDED = auto()
    UNEVALUATED_PROPERTIES_REMOVED = auto()
    UNEVALUATED_PROPERTIES_EXTENDED = auto()
    UNEVALUATED_PROPERTIES_NARROWED = auto()
    DEPENDENCY_ARRAY_ADDED = auto()
    DEPENDENCY_ARRAY_REMOVED = auto()
    DEPENDENCY_ARRAY_EXTENDED = auto()
    DEPENDENCY_ARRAY_NARROWED = auto()
    DEPENDENCY_ARRAY_CHANGED = auto()
    DEPENDENCY_SCHEMA_ADDED = auto()
    DEPENDENCY_SCHEMA_REMOVED = auto()
    REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL = auto()
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL = auto()
    OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL = auto()
    PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL = auto()
    PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL = auto()
    PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL = auto()
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()

    MAX_ITEMS_ADDED = auto()
    MAX_ITEMS_REMOVED = auto()
    MAX_ITEMS_INCREASED = auto()
    MAX_ITEMS_DECREASED = auto()
    MIN_ITEMS_ADDED = auto()
    MIN_ITEMS_REMOVED = auto()
    MIN_ITEMS_INCREASED = auto()
    MIN_ITEMS_DECREASED = auto()
    MAX_CONTAINS_ADDED = auto()
    MAX_CONTAINS_REMOVED = auto()
    MAX_CONTAINS_INCREASED = auto()
    MAX_CONTAINS_DECREASED = auto()
    MIN_CONTAINS_ADDED = auto()
    MIN_CONTAINS_REMOVED = auto()
    MIN_CONTAINS_INCREASED = auto()
    MIN_CONTAINS_DECREASED = auto()
    UNIQUE_ITEMS_ADDED = auto()
    UNIQUE_ITEMS_REMOVED = auto()
    ADDITIONAL_ITEMS_ADDED = auto()
    ADDITIONAL_ITEMS_REMOVED = auto()
    ADDITIONAL_ITEMS_EXTENDED = auto()
    ADDITIONAL_ITEMS_NARROWED = auto()
    UNEVALUATED_ITEMS_ADDED = auto()
    UNEVALUATED_ITEMS_REMOVED = auto()
    UNEVALUATED_ITEMS_EXTENDED = auto()
    UNEVALUATED_ITEMS_NARROWED = auto()
    ITEM_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL = auto()
    ITEM_ADDED_TO_CLOSED_CONTENT_MODEL = auto()
    ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL = auto()
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL = auto()
    ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL = auto()
    ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()
    ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL = auto()

    ENUM_ARRAY_EXTENDED = auto()
    ENUM_ARRAY_NARROWED = auto()
    ENUM_ARRAY_CHANGED = auto()

    COMBINED_TYPE_EXTENDED = auto()
    COMBINED_TYPE_CHANGED = auto()
    PRODUCT_TYPE_EXTENDED = auto()
    PRODUCT_TYPE_NARROWED = auto()
    SUM_TYPE_EXTENDED = auto()
    SUM_TYPE_NARROWED = auto()
    COMBINED_TYPE_SUBSCHEMAS_CHANGED = auto()
    NOT_TYPE_EXTENDED = auto()
    NOT_TYPE_NARROWED = auto()


_T = JsonDifferenceType

COMPATIBLE: Final = frozenset(
    {
        _T.ID_CHANGED,
        _T.DESCRIPTION_CHANGED,
        _T.TITLE_CHANGED,
        _T.DEFAULT_CHANGED,
        _T.SCHEMA_REMOVED,
        _T.TYPE_EXTENDED,
        _T.MAX_LENGTH_INCREASED,
        _T.MAX_LENGTH_REMOVED,
        _T.MIN_LENGTH_DECREASED,
        _T.MIN_LENGTH_REMOVED,
        _T.PATTERN_REMOVED,
        _T.MAXIMUM_INCREASED,
        _T.MAXIMUM_REMOVED,
        _T.MINIMUM_DECREASED,
        _T.MINIMUM_REMOVED,
        _T.EXCLUSIVE_MAXIMUM_INCREASED,
        _T.EXCLUSIVE_MAXIMUM_REMOVED,
        _T.EXCLUSIVE_MINIMUM_DECREASED,
        _T.EXCLUSIVE_MINIMUM_REMOVED,
        _T.MULTIPLE_OF_REDUCED,
        _T.MULTIPLE_OF_REMOVED,
        _T.REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED,
        _T.REQUIRED_ATTRIBUTE_REMOVED,
        _T.DEPENDENCY_ARRAY_NARROWED,
        _T.DEPENDENCY_ARRAY_REMOVED,
        _T.DEPENDENCY_SCHEMA_REMOVED,
        _T.MAX_PROPERTIES_INCREASED,
        _T.MAX_PROPERTIES_REMOVED,
        _T.MIN_PROPERTIES_DECREASED,
        _T.MIN_PROPERTIES_REMOVED,
        _T.ADDITIONAL_PROPERTIES_ADDED,
        _T.ADDITIONAL_PROPERTIES_EXTENDED,
        _T.UNEVALUATED_PROPERTIES_ADDED,
        _T.UNEVALUATED_PROPERTIES_EXTENDED,
        _T.PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL,
        _T.REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL,
        _T.OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL,
        _T.PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL,
        _T.PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL,
        _T.PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        _T.PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        _T.MAX_ITEMS_INCREASED,
        _T.MAX_ITEMS_REMOVED,
        _T.MIN_ITEMS_DECREASED,
        _T.MIN_ITEMS_REMOVED,
        _T.MAX_CONTAINS_INCREASED,
        _T.MAX_CONTAINS_REMOVED,
        _T.MIN_CONTAINS_DECREASED,
        _T.MIN_CONTAINS_REMOVED,
        _T.UNIQUE_ITEMS_REMOVED,
        _T.ADDITIONAL_ITEMS_ADDED,
        _T.ADDITIONAL_ITEMS_EXTENDED,
        _T.UNEVALUATED_ITEMS_ADDED,
        _T.UNEVALUATED_ITEMS_EXTENDED,
        _T.ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL,
        _T.ITEM_ADDED_TO_CLOSED_CONTENT_MODEL,
        _T.ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL,
        _T.ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL,
        _T.ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        _T.ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        _T.ENUM_ARRAY_EXTENDED,
        _T.COMBINED_TYPE_EXTENDED,
        _T.PRODUCT_TYPE_NARROWED,
        _T.SUM_TYPE_EXTENDED,
        _T.NOT_TYPE_NARROWED,
    }
)
"""The changes after which all values of the writer's schema are still valid (Confluent's policy STRICT)."""

_KEYWORD = "The keyword at path '{path}' in the %s schema is not present in the %s schema"
_MORE = "The value at path '{path}' in the %s schema is more than its value in the %s schema"
_LESS = "The value at path '{path}' in the %s schema is less than its value in the %s schema"
_CHANGED = "The value at path '{path}' is different between the %s and %s schema"
_FEWER = "An array or combined type at path '{path}' has fewer elements in the %s schema than the %s schema"
_LONGER = "An array or combined type at path '{path}' has more elements in the %s schema than the %s schema"
_TYPE = "A type at path '{path}' is different between the %s schema and the %s schema"
_ADDED_TO_OPEN = (
    "The %s schema has an open content model and has a property or item at path '{path}' which is missing in the "
    "%s schema"
)
_ADDED_TO_UNOPEN = (
    "The %s schema has an unopen content model and has a required property at path '{path}' which is missing in "
    "the %s schema"
)
_REMOVED_FROM_CLOSED = (
    "The %s has a closed content model and is missing a property or item present at path '{path}' in the %s schema"
)
_REMOVED_NOT_COVERED = (
    "A property or item is missing in the %s schema but present at path '{path}' in the %s schema and is "
    "not covered by its partially open content model"
)
_ADDED_NOT_COVERED = (
    "The %s schema has a property or item at path '{path}' which is missing in the %s schema and is not "
    "covered by its partially open content model"
)

_DESCRIPTIONS: Final = {
    _T.MAXIMUM_ADDED: _KEYWORD,
    _T.MINIMUM_ADDED: _KEYWORD,
    _T.EXCLUSIVE_MAXIMUM_ADDED: _KEYWORD,
    _T.EXCLUSIVE_MINIMUM_ADDED: _KEYWORD,
    _T.MULTIPLE_OF_ADDED: _KEYWORD,
    _T.MAX_LENGTH_ADDED: _KEYWORD,
    _T.MIN_LENGTH_ADDED: _KEYWORD,
    _T.PATTERN_ADDED: _KEYWORD,
    _T.REQUIRED_ATTRIBUTE_ADDED: _KEYWORD,
    _T.MAX_PROPERTIES_ADDED: _KEYWORD,
    _T.MIN_PROPERTIES_ADDED: _KEYWORD,
    _T.DEPENDENCY_ARRAY_ADDED: _KEYWORD,
    _T.DEPENDENCY_SCHEMA_ADDED: _KEYWORD,
    _T.MAX_ITEMS_ADDED: _KEYWORD,
    _T.MIN_ITEMS_ADDED: _KEYWORD,
    _T.MAX_CONTAINS_ADDED: _KEYWORD,
    _T.MIN_CONTAINS_ADDED: _KEYWORD,
    _T.UNIQUE_ITEMS_ADDED: _KEYWORD,
    _T.ADDITIONAL_ITEMS_REMOVED: _KEYWORD,
    _T.ADDITIONAL_PROPERTIES_REMOVED: _KEYWORD,
    _T.UNEVALUATED_PROPERTIES_REMOVED: _KEYWORD,
    _T.UNEVALUATED_ITEMS_REMOVED: _KEYWORD,
    _T.SCHEMA_ADDED: _KEYWORD,
    _T.MIN_LENGTH_INCREASED: _MORE,
    _T.MINIMUM_INCREASED: _MORE,
    _T.EXCLUSIVE_MINIMUM_INCREASED: _MORE,
    _T.MIN_PROPERTIES_INCREASED: _MORE,
    _T.MULTIPLE_OF_EXPANDED: _MORE,
    _T.MIN_ITEMS_INCREASED: _MORE,
    _T.MIN_CONTAINS_INCREASED: _MORE,
    _T.MAX_LENGTH_DECREASED: _LESS,
    _T.MAXIMUM_DECREASED: _LESS,
    _T.MAX_ITEMS_DECREASED: _LESS,
    _T.MAX_CONTAINS_DECREASED: _LESS,
    _T.EXCLUSIVE_MAXIMUM_DECREASED: _LESS,
    _T.MAX_PROPERTIES_DECREASED: _LESS,
    _T.ADDITIONAL_ITEMS_NARROWED: _FEWER,
    _T.ENUM_ARRAY_NARROWED: _FEWER,
    _T.SUM_TYPE_NARROWED: _FEWER,
    _T.ADDITIONAL_PROPERTIES_NARROWED: _FEWER,
    _T.UNEVALUATED_PROPERTIES_NARROWED: _FEWER,
    _T.UNEVALUATED_ITEMS_NARROWED: _FEWER,
    _T.PATTERN_CHANGED: _CHANGED,
    _T.MULTIPLE_OF_CHANGED: _CHANGED,
    _T.DEPENDENCY_ARRAY_CHANGED: _CHANGED,
    _T.TYPE_CHANGED: _TYPE,
    _T.TYPE_NARROWED: _TYPE,
    _T.COMBINED_TYPE_CHANGED: _TYPE,
    _T.COMBINED_TYPE_SUBSCHEMAS_CHANGED: _TYPE,
    _T.ENUM_ARRAY_CHANGED: _TYPE,
    _T.DEPENDENCY_ARRAY_EXTENDED: _LONGER,
    _T.PRODUCT_TYPE_EXTENDED: _LONGER,
    _T.SUM_TYPE_EXTENDED: _LONGER,
    _T.NOT_TYPE_EXTENDED: _LONGER,
    _T.REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL: _ADDED_TO_OPEN,
    _T.REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL: _ADDED_TO_OPEN,
    _T.OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL: _ADDED_TO_OPEN,
    _T.ITEM_ADDED_TO_OPEN_CONTENT_MODEL: _ADDED_TO_OPEN,
    _T.REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL: _ADDED_TO_UNOPEN,
    _T.PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL: _REMOVED_FROM_CLOSED,
    _T.ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL: _REMOVED_FROM_CLOSED,
    _T.PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL: _REMOVED_NOT_COVERED,
    _T.ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL: _REMOVED_NOT_COVERED,
    _T.PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL: _ADDED_NOT_COVERED,
    _T.ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL: _ADDED_NOT_COVERED,
}
"""The descriptions of the incompatible differences."""


class JsonDifference(NamedTuple):
    """A change at a place in the schema, such as `#/properties/name/maxLength`."""

    type: JsonDifferenceType
    path: str

    @property
    def is_compatible(self) -> bool:
        """Whether the reader's schema accepts all values of the writer's nevertheless."""
        return self.type in COMPATIBLE

    @property
    def message(self) -> str:
        """Confluent's message. Its two `%s` stand for the reader's and the writer's schema (`new` or `old`)."""
        description = _DESCRIPTIONS.get(self.type, "").format(path=self.path)
        # The quotation marks do not match in Confluent's messages either.
        return f'{{errorType:"{self.type}", description:"{description}\'}}'
