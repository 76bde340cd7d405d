"""JSON Schema documents: parsing their text, and resolving the references within and between them.

A reference is resolved among the given documents only; nothing is ever fetched. The cost is bounded by the length of
the texts: each document is walked once, and `NESTING_MAX` bounds the recursion of everything that walks it afterwards.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote, urljoin

from chronik.errors import ChronikError

JsonValue = Any
"""A parsed JSON value: None, bool, int, Decimal, str, and lists and dicts of these."""

NESTING_MAX: Final = 100
"""Maximum nesting depth of lists and objects in a document."""

URI_CHARACTERS_MAX: Final = 2_000
"""Maximum length of a URI after it was resolved."""


class DocumentError(ChronikError):
    """A document that is not a valid JSON Schema document, or that refers to an unknown document."""


class Draft(IntEnum):
    """A version of the JSON Schema specification."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 8
    DRAFT_2020_12 = 9

    @property
    def id_keyword(self) -> str:
        """The keyword that identifies a schema."""
        return "id" if self is Draft.DRAFT_4 else "$id"


_DRAFTS: Final[Mapping[str, Draft]] = {
    "json-schema.org/draft-04/schema": Draft.DRAFT_4,
    "json-schema.org/schema": Draft.DRAFT_4,
    "json-schema.org/draft-06/schema": Draft.DRAFT_6,
    "json-schema.org/draft-07/schema": Draft.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": Draft.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": Draft.DRAFT_2020_12,
}

_VALUE_KEYWORDS: Final = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are not schemas, even if they look like ones."""


def find_draft(uri: object) -> Draft | None:
    """Return the draft with this value of `$schema`, or None if there is none."""
    if not isinstance(uri, str):
        return None
    scheme, separator, rest = uri.removesuffix("#").partition("://")
    return _DRAFTS.get(rest) if separator and scheme in ("http", "https") else None


class Metaschema(NamedTuple):
    """The schema of a draft's schemas. References to it need no document."""

    draft: Draft


class Location(NamedTuple):
    """A schema in a document."""

    value: JsonValue | Metaschema
    document: JsonValue
    """The document's root."""
    base: str
    """The URI against which references in the schema are resolved."""


def parse_json(text: str) -> JsonValue:
    """Parse JSON without loss: numbers with a fraction or an exponent become decimals.

    Raises:
        DocumentError: The text is not valid JSON, or nested too deep.
    """
    try:
        value = json.loads(text, parse_float=Decimal, parse_constant=_reject_constant)
        text.encode()
    except (ValueError, ArithmeticError) as error:
        raise DocumentError(f"invalid JSON: {error}") from None
    except RecursionError:
        raise DocumentError(f"lists and objects are nested more than {NESTING_MAX} deep") from None
    level = [value]
    for _ in range(NESTING_MAX + 1):
        level = [child for each in level for child in _iter_children(each)]
        if not level:
            return value
    raise DocumentError(f"lists and objects are nested more than {NESTING_MAX} deep")


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _iter_children(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class SchemaDocuments:
    """A schema document and the documents to which it refers."""

    def __init__(self, text: str, references: Iterable[tuple[str, str]] = ()) -> None:
        """Parse a document, and the documents with the names by which it refers to them.

        Raises:
            DocumentError: A document is not valid.
        """
        root = _parse_document(text)
        self.draft: Final = (find_draft(root.get("$schema")) if isinstance(root, dict) else None) or Draft.DRAFT_7
        """The draft of the document; draft 7 if `$schema` is missing or unknown, as in Confluent's registry."""
        self._schemas: dict[str, Location] = {}
        base = self._get_base(root, "")
        self.root: Final = Location(root, root, base)
        self._index(root, base)
        for name, referenced in references:
            try:
                document = _parse_document(referenced)
            except DocumentError as error:
                raise DocumentError(f"reference {name!r}: {error}") from None
            names = {name, _join(base, name)}
            own_base = self._get_base(document, _join(base, name))
            for each in names:
                self._schemas.setdefault(_split_fragment(each)[0], Location(document, document, own_base))
            self._index(document, own_base)

    def resolve(self, reference: str, location: Location) -> Location:
        """Return the schema to which a `$ref` in a schema refers.

        Raises:
            DocumentError: There is no such schema.
        """
        draft = find_draft(reference)
        uri, fragment = _split_fragment(_join(location.base, reference))
        raw_uri = _split_fragment(reference)[0].removeprefix("./")
        found = self._schemas.get(f"{uri}#{fragment}") if fragment and not fragment.startswith("/") else None
        if found is not None:
            return found
        if not raw_uri and self.draft < Draft.DRAFT_2019_09:
            # Before 2019-09, Confluent resolves a fragment from the document's root instead of the nearest `$id`.
            target = Location(location.document, location.document, self._get_base(location.document, location.base))
        else:
            candidate = self._schemas.get(uri) or self._schemas.get(raw_uri)
            if candidate is None:
                if draft is not None:
                    return Location(Metaschema(draft), location.document, location.base)
                raise DocumentError(f"unresolved reference {reference!r}: no schema with this name is referenced")
            target = candidate
        if not fragment:
            return target
        if not fragment.startswith("/"):
            raise DocumentError(f"unresolved reference {reference!r}: no schema has this anchor")
        return self._follow_pointer(reference, fragment, target)

    def _follow_pointer(self, reference: str, fragment: str, start: Location) -> Location:
        value, base = start.value, start.base
        for number, token in enumerate(fragment.split("/")[1:]):
            key = unquote(token).replace("~1", "/").replace("~0", "~")
            if number == 0 and key == "$defs" and isinstance(value, dict):
                # As in Confluent's registry, `definitions` can be referred to as `$defs`.
                value = ChainMap(_get_object(value, "$defs"), _get_object(value, "definitions"))
            elif isinstance(value, dict | ChainMap) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
                value = value[int(key)]
            else:
                raise DocumentError(f"unresolved reference {reference!r}: there is no {key!r}")
            base = self._get_base(value, base)
        return Location(value, start.document, base)

    def enter(self, value: JsonValue, parent: Location) -> Location:
        """Return the location of a schema within another schema."""
        return Location(value, parent.document, self._get_base(value, parent.base))

    def _get_base(self, value: JsonValue, base: str) -> str:
        """Return the base URI for references in a schema, given that of the schema around it."""
        uri = value.get(self.draft.id_keyword) if isinstance(value, dict) else None
        return base if not isinstance(uri, str) or uri.startswith("#") else _join(base, uri)

    def _index(self, root: JsonValue, base: str) -> None:
        """Record the schemas in a document that have a URI or an anchor."""
        self._schemas.setdefault(_split_fragment(base)[0], Location(root, root, base))
        stack = [(root, base)]
        while stack:
            value, parent_base = stack.pop()
            if isinstance(value, dict):
                own_base = self._get_base(value, parent_base)
                uri = _split_fragment(own_base)[0]
                if own_base != parent_base:
                    self._schemas.setdefault(uri, Location(value, root, own_base))
                for keyword in (self.draft.id_keyword, "$anchor", "$dynamicAnchor"):
                    anchor = value.get(keyword)
                    if isinstance(anchor, str) and anchor.startswith("#") == (keyword == self.draft.id_keyword):
                        self._schemas.setdefault(f"{uri}#{anchor.removeprefix('#')}", Location(value, root, own_base))
                stack += [(child, own_base) for key, child in value.items() if key not in _VALUE_KEYWORDS]
            elif isinstance(value, list):
                stack += [(child, parent_base) for child in value]


def _parse_document(text: str) -> JsonValue:
    value = parse_json(text)
    if not isinstance(value, dict | bool):
        raise DocumentError(f"a JSON Schema is an object or a boolean, this is {describe_json(value)}")
    return value


def describe_json(value: JsonValue) -> str:
    """Return the name of a JSON value's type, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | Decimal):
        return "a number"
    return "a string" if isinstance(value, str) else "an array" if isinstance(value, list) else "an object"


def _get_object(value: Mapping[str, JsonValue], key: str) -> dict[str, JsonValue]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _split_fragment(uri: str) -> tuple[str, str]:
    uri, _, fragment = uri.partition("#")
    return uri, fragment


def _join(base: str, reference: str) -> str:
    try:
        joined = urljoin(base, reference)
    except ValueError as error:
        raise DocumentError(f"invalid URI {reference!r}: {error}") from None
    if len(joined) > URI_CHARACTERS_MAX:
        raise DocumentError(f"a URI has more than {URI_CHARACTERS_MAX:,} characters")
    return joined
