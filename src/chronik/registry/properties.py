"""Metadata and rule sets of schemas: canonical form, merging, validation, storage and the GUID.

Equal content must have equal bytes, because schemas with equal content share an id. Lists and objects whose order does
not matter are therefore sorted, and empty ones are omitted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from chronik.limits import SCHEMA_PROPERTIES_BYTES_MAX
from chronik.metadata.commands.schemas import ReferencedVersion
from chronik.registry.entities import Entity, Metadata, Rule, RuleSet
from chronik.registry.errors import InvalidRuleSetError, SchemaTooLargeError

VERSION_PROPERTY: Final = "confluent:version"
"""The metadata property that contains the version number of a schema."""

RULE_NAME_CHARACTERS_MAX: Final = 256
"""The maximum length of a rule's name, as in Confluent's registry."""

RULE_KINDS: Final = ("TRANSFORM", "CONDITION")
MIGRATION_RULE_MODES: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN")
DOMAIN_RULE_MODES: Final = ("WRITE", "READ", "WRITEREAD")
"""The modes of domain and encoding rules."""

MODES_WITH_TWO_ACTIONS: Final = ("WRITEREAD", "UPDOWN")
"""The modes of rules whose actions may be a pair: one for writing or upgrading, one for reading or downgrading."""


class SchemaProperties(NamedTuple):
    """The metadata and the rule set of a schema."""

    metadata: Metadata | None
    rule_set: RuleSet | None


class _StoredProperties(Entity, frozen=True):
    """The JSON form in which properties are stored."""

    metadata: Metadata | None = None
    rule_set: RuleSet | None = None


def encode_properties(properties: SchemaProperties) -> str:
    """Return the properties in the form in which they are stored: empty without metadata and rule set.

    Raises:
        SchemaTooLargeError: The metadata and the rule set are too large.
    """
    if properties == (None, None):
        return ""
    return encode_limited(_StoredProperties(*properties))


def encode_limited(entity: Entity) -> str:
    """Return an entity as JSON.

    Raises:
        SchemaTooLargeError: The JSON is larger than the registry stores.
    """
    data = msgspec.json.encode(entity)
    if len(data) > SCHEMA_PROPERTIES_BYTES_MAX:
        raise SchemaTooLargeError(
            f"Metadata and rule sets may have at most {SCHEMA_PROPERTIES_BYTES_MAX} bytes as JSON, not {len(data)}"
        )
    return data.decode()


def decode_properties(text: str) -> SchemaProperties:
    """Return stored properties."""
    if not text:
        return SchemaProperties(None, None)
    stored = msgspec.json.decode(text, type=_StoredProperties)
    return SchemaProperties(stored.metadata, stored.rule_set)


# --- canonical form ---


def canonicalize_metadata(metadata: Metadata) -> Metadata:
    """Return metadata with sorted keys, tags and names, without empty collections."""
    tags = {key: sorted(set(values)) for key, values in sorted((metadata.tags or {}).items())}
    return Metadata(
        tags=tags or None,
        properties=dict(sorted((metadata.properties or {}).items())) or None,
        sensitive=sorted(set(metadata.sensitive or ())) or None,
    )


def canonicalize_rule_set(rule_set: RuleSet) -> RuleSet:
    """Return a rule set with the default values of rules filled in, without empty collections."""
    return RuleSet(
        migration_rules=_canonicalize_rules(rule_set.migration_rules),
        domain_rules=_canonicalize_rules(rule_set.domain_rules),
        encoding_rules=_canonicalize_rules(rule_set.encoding_rules),
        enable_at=rule_set.enable_at,
    )


def _canonicalize_rules(rules: list[Rule] | None) -> list[Rule] | None:
    return [_canonicalize_rule(rule) for rule in rules or ()] or None


def _canonicalize_rule(rule: Rule) -> Rule:
    return replace(
        rule,
        kind=rule.kind or "TRANSFORM",
        mode=rule.mode or "WRITEREAD",
        tags=sorted(set(rule.tags or ())) or None,
        params=dict(sorted((rule.params or {}).items())) or None,
    )


# --- merging ---


def merge_metadata(old: Metadata | None, new: Metadata | None) -> Metadata | None:
    """Return the union of two metadata. The new one takes precedence."""
    if old is None or new is None:
        return old if new is None else new
    return canonicalize_metadata(
        Metadata(
            tags=(old.tags or {}) | (new.tags or {}),
            properties=(old.properties or {}) | (new.properties or {}),
            sensitive=[*(old.sensitive or ()), *(new.sensitive or ())],
        )
    )


def merge_rule_sets(old: RuleSet | None, new: RuleSet | None) -> RuleSet | None:
    """Return the union of two rule sets. New rules replace old rules with the same name."""
    if old is None or new is None:
        return old if new is None else new
    return RuleSet(
        migration_rules=_merge_rules(old.migration_rules, new.migration_rules),
        domain_rules=_merge_rules(old.domain_rules, new.domain_rules),
        encoding_rules=_merge_rules(old.encoding_rules, new.encoding_rules),
        enable_at=new.enable_at if new.enable_at is not None else old.enable_at,
    )


def _merge_rules(old: list[Rule] | None, new: list[Rule] | None) -> list[Rule] | None:
    names = {rule.name for rule in new or ()}
    return [*(rule for rule in old or () if rule.name not in names), *(new or ())] or None


def has_rule_of_type(rule_set: RuleSet | None, rule_type: str) -> bool:
    """Return whether a rule set has a rule of a type."""
    if rule_set is None:
        return False
    lists = (rule_set.domain_rules, rule_set.migration_rules, rule_set.encoding_rules)
    return any(rule.type == rule_type for rules in lists for rule in rules or ())


def get_version_property(metadata: Metadata | None) -> str | None:
    """Return the version number in the metadata, as text, or None."""
    return None if metadata is None else (metadata.properties or {}).get(VERSION_PROPERTY)


def set_version_property(metadata: Metadata | None, version: int) -> Metadata:
    """Return metadata with a version number."""
    known = metadata or Metadata()
    properties = (known.properties or {}) | {VERSION_PROPERTY: str(version)}
    return replace(known, properties=dict(sorted(properties.items())))


def remove_version_property(metadata: Metadata | None) -> Metadata | None:
    """Return metadata without its version number."""
    if metadata is None or get_version_property(metadata) is None:
        return metadata
    left = {key: value for key, value in (metadata.properties or {}).items() if key != VERSION_PROPERTY}
    return replace(metadata, properties=left or None)


# --- validation of rule sets ---


def check_rule_set(rule_set: RuleSet | None) -> None:
    """Check the rules of a rule set that a client sent.

    Raises:
        InvalidRuleSetError: A rule repeats a name, lacks a field, or has an invalid one.
    """
    if rule_set is None:
        return
    names: set[str | None] = set()
    _check_rules(rule_set.migration_rules, names, MIGRATION_RULE_MODES, "Migration")
    _check_rules(rule_set.domain_rules, names, DOMAIN_RULE_MODES, "Domain")
    _check_rules(rule_set.encoding_rules, names, DOMAIN_RULE_MODES, "Encoding")


def _check_rules(rules: list[Rule] | None, names: set[str | None], modes: tuple[str, ...], phase: str) -> None:
    for rule in rules or ():
        if rule.name in names:
            raise InvalidRuleSetError(f"Found rule with duplicate name '{rule.name}'")
        names.add(rule.name)
        _check_rule_name(rule.name)
        if rule.type is None:
            raise InvalidRuleSetError("Missing rule type")
        if rule.kind is not None and rule.kind not in RULE_KINDS:
            raise InvalidRuleSetError(f"Rules can only have the kinds {', '.join(RULE_KINDS)}")
        mode = rule.mode or "WRITEREAD"
        if mode not in MODES_WITH_TWO_ACTIONS and any(
            "," in (action or "") for action in (rule.on_success, rule.on_failure)
        ):
            raise InvalidRuleSetError("Multiple actions only valid with WRITEREAD and UPDOWN")
        if mode not in modes:
            raise InvalidRuleSetError(f"{phase} rules can only be {', '.join(modes)}")


def _check_rule_name(name: str | None) -> None:
    if name is None:
        raise InvalidRuleSetError("Missing rule name")
    if not name:
        raise InvalidRuleSetError("Empty rule name")
    if len(name) > RULE_NAME_CHARACTERS_MAX:
        raise InvalidRuleSetError("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise InvalidRuleSetError(f"Illegal initial character in rule name: {name}")
    if not all(character.isalnum() or character in "_-" for character in name[1:]):
        raise InvalidRuleSetError(f"Illegal character in rule name: {name}")


# --- GUIDs ---


def compute_guid(text: str, references: Iterable[ReferencedVersion], properties: SchemaProperties) -> bytes:
    """Return the GUID of a schema: the MD5 hash of its content, computed as Confluent's registry does."""
    data = [_encode([text])]
    for reference in references:
        data += (_encode([reference.name, reference.subject]), reference.version.to_bytes(4, "big"))
    if properties.metadata is not None:
        data += (b"\x01", _encode(_iter_metadata_strings(properties.metadata)))
    if properties.rule_set is not None:
        data.append(b"\x01")
        rules = properties.rule_set
        for rule in (*(rules.migration_rules or ()), *(rules.domain_rules or ()), *(rules.encoding_rules or ())):
            data += (_encode(_iter_rule_strings(rule)), b"\x01" if rule.disabled else b"")
        data.append(_encode([rules.enable_at or ""]))
    return hashlib.md5(b"".join(data), usedforsecurity=False).digest()


def _encode(parts: Iterable[str]) -> bytes:
    return "".join(parts).encode("utf-8", "surrogatepass")


def _iter_metadata_strings(metadata: Metadata) -> Iterable[str]:
    for key, values in (metadata.tags or {}).items():
        yield key
        yield from values
    for key, value in (metadata.properties or {}).items():
        yield key
        yield value
    yield from metadata.sensitive or ()


def _iter_rule_strings(rule: Rule) -> Iterable[str]:
    yield from filter(None, (rule.name, rule.doc, rule.kind, rule.mode, rule.type))
    yield from rule.tags or ()
    for key, value in (rule.params or {}).items():
        yield key
        yield value
    yield from filter(None, (rule.expr, rule.on_success, rule.on_failure))
