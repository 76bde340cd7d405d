"""GUIDs, canonical form and merging of metadata and rule sets."""

from __future__ import annotations

import hashlib

from chronik.metadata.commands.schemas import ReferencedVersion
from chronik.registry.entities import Metadata, Rule, RuleSet
from chronik.registry.properties import (
    SchemaProperties,
    canonicalize_metadata,
    canonicalize_rule_set,
    compute_guid,
    decode_properties,
    encode_properties,
    merge_metadata,
    merge_rule_sets,
    remove_version_property,
    set_version_property,
)

NOTHING = SchemaProperties(None, None)


def test_guid_of_a_text_is_its_md5_hash() -> None:
    assert compute_guid('"é"', (), NOTHING).hex() == hashlib.md5('"é"'.encode()).hexdigest()


def test_guid_hashes_all_content_in_the_order_of_confluent() -> None:
    rule = Rule(
        "n", "d", "CONDITION", "WRITE", "CEL", ["t", "u"], {"p": "q"}, "e", "s", "f", disabled=True
    )  # fmt: skip
    properties = SchemaProperties(Metadata({"a": ["x", "y"]}, {"k": "v"}, ["z"]), RuleSet([rule], [], [rule], "CLIENT"))
    rule_bytes = b"ndCONDITIONWRITECELtupqesf\x01"
    expected = b"text" + b"nsub\x00\x00\x01\x02" + b"\x01axykvz" + b"\x01" + rule_bytes * 2 + b"CLIENT"
    found = compute_guid("text", [ReferencedVersion("n", "sub", 258)], properties)
    assert found == hashlib.md5(expected).digest()


def test_guid_distinguishes_empty_metadata_from_none() -> None:
    variants = [NOTHING, SchemaProperties(Metadata(), None), SchemaProperties(Metadata(), RuleSet())]
    assert len({compute_guid("t", (), each) for each in variants}) == 3
    assert [decode_properties(encode_properties(each)) for each in variants] == variants
    assert encode_properties(NOTHING) == ""


def test_order_of_properties_does_not_matter() -> None:
    left = canonicalize_metadata(Metadata({"b": ["2", "1"], "a": ["3"]}, {"y": "1", "x": "2"}, ["n", "m", "m"]))
    right = canonicalize_metadata(Metadata({"a": ["3"], "b": ["1", "2", "1"]}, {"x": "2", "y": "1"}, ["m", "n"]))
    assert encode_properties(SchemaProperties(left, None)) == encode_properties(SchemaProperties(right, None))


def test_rules_get_default_kind_and_mode() -> None:
    found = canonicalize_rule_set(RuleSet(domain_rules=[Rule("a", type="CEL", tags=[], params={})]))
    assert found == RuleSet(domain_rules=[Rule("a", kind="TRANSFORM", mode="WRITEREAD", type="CEL")])
    assert encode_properties(SchemaProperties(None, found)) == (
        '{"ruleSet":{"domainRules":[{"name":"a","kind":"TRANSFORM","mode":"WRITEREAD","type":"CEL","disabled":false}]}}'
    )


def test_merge_prefers_the_new_values() -> None:
    old = Metadata({"a": ["1"], "b": ["1"]}, {"p": "1", "q": "1"}, ["s"])
    new = Metadata({"b": ["2"]}, {"q": "2"}, ["r"])
    assert merge_metadata(old, new) == Metadata({"a": ["1"], "b": ["2"]}, {"p": "1", "q": "2"}, ["r", "s"])
    assert merge_metadata(old, None) is old
    assert merge_metadata(None, new) is new
    first, second, other = Rule("a", expr="1"), Rule("a", expr="2"), Rule("b")
    merged = merge_rule_sets(RuleSet([first, other], enable_at="x"), RuleSet([second], [other]))
    assert merged == RuleSet([other, second], [other], enable_at="x")
    assert merge_rule_sets(None, None) is None


def test_version_property_is_set_and_removed() -> None:
    metadata = set_version_property(Metadata(properties={"z": "1"}), 7)
    assert metadata.properties == {"confluent:version": "7", "z": "1"}
    assert remove_version_property(metadata) == Metadata(properties={"z": "1"})
    assert remove_version_property(set_version_property(None, 1)) == Metadata()
    assert remove_version_property(None) is None
