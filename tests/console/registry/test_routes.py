"""Routing of the schema registry's REST API: paths, contexts, query parameters and bodies."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.console.registry.errors import MethodNotAllowedError, RequestError
from chronik.console.registry.operation_table import OPERATIONS, RegistryOperation
from chronik.console.registry.routes import (
    CONFIG_BODY_BYTES_MAX,
    FIELDS_MAX,
    REFERENCES_BYTES_MAX,
    Route,
    decode_body,
    list_methods,
    match_route,
)
from chronik.limits import SCHEMA_PROPERTIES_BYTES_MAX
from chronik.registry.entities import Metadata, RegistryConfigChange, SchemaReference, SchemaRequest
from chronik.registry.errors import RegistryError


def find_operation(function: str, path: str) -> RegistryOperation:
    return next(each for each in OPERATIONS if each.function == function and each.path == path)


REGISTER = find_operation("register_schema", "/subjects/{subject}/versions")
ALTER_CONFIG = find_operation("alter_config", "/config")


def match(target: str, query: str = "", method: str = "GET") -> tuple[str, dict[str, str], Any]:
    route: Route = match_route(method, target, query)
    return route.operation.function, dict(route.path), route.query


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.method}-{each.path}")
def test_route_matches_every_operation(operation: RegistryOperation) -> None:
    target = operation.path.format(subject="s", version="1", id="7", guid="g", context=".lab")
    assert match_route(operation.method, target, "").operation is operation


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/subjects/a%2Fb/versions", {"subject": "a/b"}),
        ("/subjects/a%20b%C3%A9/versions", {"subject": "a bé"}),
        ("/subjects/:.lab:orders/versions/", {"subject": ":.lab:orders"}),
        ("/contexts/.lab/subjects/orders/versions", {"subject": ":.lab:orders"}),
        ("/contexts/lab/subjects/orders/versions", {"subject": ":.lab:orders"}),
        ("/contexts/:.lab:/subjects/orders/versions", {"subject": ":.lab:orders"}),
        ("/contexts/./subjects/orders/versions", {"subject": "orders"}),
        ("/contexts/.lab/subjects/:.other:orders/versions", {"subject": ":.other:orders"}),
    ],
)
def test_subject_of_path_is_decoded_and_qualified(target: str, path: dict[str, str]) -> None:
    assert match(target)[:2] == ("list_versions", path)


@pytest.mark.parametrize(
    ("target", "function", "path"),
    [
        ("/contexts/.lab/config", "get_config", {"subject": ":.lab:"}),
        ("/contexts/.lab/config/orders", "get_config", {"subject": ":.lab:orders"}),
        ("/contexts/./config", "get_config", {}),
        ("/contexts/.lab/mode", "get_mode", {"subject": ":.lab:"}),
        ("/contexts/.lab/schemas/types", "list_types", {}),
        ("/contexts/.lab/compatibility/subjects/orders/versions/latest", "check_compatibility_with_version",
         {"subject": ":.lab:orders", "version": "latest"}),
        ("/contexts", "list_contexts", {}),
    ],
)  # fmt: skip
def test_context_of_path_qualifies_subjects(target: str, function: str, path: dict[str, str]) -> None:
    method = "POST" if function.startswith("check") else "GET"
    assert match(target, method=method)[:2] == (function, path)


def test_context_of_path_qualifies_subjects_in_query() -> None:
    assert match("/contexts/.lab/schemas/ids/7")[2].subject == ":.lab:"
    assert match("/contexts/.lab/schemas/ids/7", "subject=orders")[2].subject == ":.lab:orders"
    assert match("/contexts/.lab/subjects", "subjectPrefix=o")[2].subject_prefix == ":.lab:o"
    assert match("/contexts/.lab/schemas")[2].subject_prefix == ":.lab:"


def test_context_with_colon_is_rejected() -> None:
    with pytest.raises(RequestError, match="cannot contain a colon") as raised:
        match("/contexts/a:b/subjects")
    assert raised.value.status == 400


@pytest.mark.parametrize(
    "target",
    ["/nothing", "/subjects//versions", "/subjects/a/b", "/schemas/ids/x", "/schemas/ids/1e3", "//subjects",
     "/schemas/ids/2147483648", "/schemas/ids/99999999999", "/schemas/ids/%D9%A1", "/subjects/a/versions/1/x"],
)  # fmt: skip
def test_unknown_path_is_not_found(target: str) -> None:
    with pytest.raises(RequestError) as raised:
        match(target)
    assert (raised.value.status, raised.value.error_code, str(raised.value)) == (404, 404, "HTTP 404 Not Found")


@pytest.mark.parametrize(
    ("method", "target", "status", "feature"),
    [
        ("GET", "/dek-registry/v1/keks", 501, "the DEK registry (client-side field level encryption)"),
        ("POST", "/dek-registry/v1/keks/k/deks", 501, "the DEK registry (client-side field level encryption)"),
        ("GET", "/exporters", 501, "exporters (schema linking)"),
        ("PUT", "/exporters/e/resume", 501, "exporters (schema linking)"),
        ("GET", "/contexts/.lab/exporters", 501, "exporters (schema linking)"),
        ("GET", "/associations/resources/-/orders", 404, "associations of subjects with topics"),
        ("POST", "/associations", 404, "associations of subjects with topics"),
        ("POST", "/catalog/v1/types/tagdefs", 501, "the catalog"),
        ("POST", "/subjects/orders-value/versions/1/tags", 501, "changes of tags"),
        ("GET", "/v1/metadata/deployment", 404, "deployment information"),
    ],
)
def test_unsupported_path_names_feature(method: str, target: str, status: int, feature: str) -> None:
    with pytest.raises(RequestError) as raised:
        match(target, method=method)
    found = (raised.value.status, raised.value.error_code, str(raised.value))
    assert found == (status, status, f"This registry does not support {feature}")


@pytest.mark.parametrize("target", ["/subjects/%FF/versions", "/subjects/%C3/versions"])
def test_path_that_is_not_utf8_is_rejected(target: str) -> None:
    with pytest.raises(RequestError) as raised:
        match(target)
    assert raised.value.status == 400


def test_unsupported_method_lists_supported_ones() -> None:
    with pytest.raises(MethodNotAllowedError) as raised:
        match("/config", method="PATCH")
    assert raised.value.allowed == "GET, PUT, DELETE, HEAD, OPTIONS"
    assert list_methods("/subjects/a") == ["POST", "DELETE", "OPTIONS"]


def test_head_matches_get() -> None:
    assert match("/subjects", method="HEAD")[0] == "list_subjects"


def test_query_is_decoded_as_by_confluent() -> None:
    query = match("/subjects", "deleted=TRUE&deletedOnly=1&offset=3&limit=-1&limit=5&unknown=x&subjectPrefix=a%20b")[2]
    assert (query.deleted, query.deleted_only, query.offset, query.limit) == (True, False, 3, -1)
    assert query.subject_prefix == "a b"
    repeated = match("/subjects/a/metadata", "key=a&value=1&key=b&value=2")[2]
    assert (repeated.key, repeated.value) == (("a", "b"), ("1", "2"))


def test_query_with_invalid_number_is_not_found() -> None:
    with pytest.raises(RequestError) as raised:
        match("/subjects", "offset=x")
    assert raised.value.status == 404


def test_query_with_too_many_parameters_is_rejected() -> None:
    match("/subjects", "&".join(["a=b"] * FIELDS_MAX))
    with pytest.raises(RequestError) as raised:
        match("/subjects", "&".join(["a=b"] * (FIELDS_MAX + 1)))
    assert raised.value.status == 400


# Bodies


def decode(body: Any, operation: RegistryOperation = REGISTER) -> Any:
    return decode_body(operation, body if isinstance(body, bytes) else json.dumps(body).encode())


def test_schema_request_is_decoded() -> None:
    found = decode(
        {
            "schema": '"int"',
            "schemaType": "AVRO",
            "references": [{"name": "a", "subject": "b", "version": 1}],
            "metadata": {"properties": {"owner": "x"}},
            "ruleSet": None,
            "id": "7",
            "unknown": [1],
        }
    )
    assert found == SchemaRequest(
        '"int"', "AVRO", [SchemaReference("a", "b", 1)], Metadata(properties={"owner": "x"}), None, 7
    )


@pytest.mark.parametrize("field", ["schemaTagsToAdd", "schemaTagsToRemove"])
def test_change_of_tags_is_rejected(field: str) -> None:
    with pytest.raises(RequestError, match="does not support changes of tags") as raised:
        decode({"schema": "s", field: [{"schemaEntity": {"entityPath": "x"}, "tags": ["PII"]}]})
    assert raised.value.error_code == 501
    assert decode({"schema": "s", field: []}).schema == "s"
    assert decode({"schema": "s", field: None}).schema == "s"


def test_config_change_distinguishes_null_from_absent() -> None:
    assert decode({"compatibility": "FULL", "alias": None}, ALTER_CONFIG) == RegistryConfigChange(
        alias=None, compatibility_level="FULL"
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 422), (b"{", 400), (b"[]", 400), (b"\xff", 400), (b'{"schema": 5}', 400), (b'{"id": "x"}', 400),
     (b'{"references": {}}', 400), (b'{"schema": "\\ud800"}', 400), (b"[" * 100_000, 400)],
)  # fmt: skip
def test_invalid_body_is_rejected(body: bytes, status: int) -> None:
    with pytest.raises(RequestError) as raised:
        decode(body)
    assert raised.value.status == status


paths = st.lists(
    st.sampled_from([*"/%:.?&=", "subjects", "versions", "schemas", "ids", "contexts", ":.a:", "%2F", "%ff", "config"])
    | st.text(max_size=4),
    max_size=12,
).map("".join)


@given(paths, paths, st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH"]))
def test_any_path_is_matched_or_rejected(path: str, query: str, method: str) -> None:
    with suppress(RequestError):
        match_route(method, f"/{path}", query)
    with suppress(RequestError):
        list_methods(f"/{path}")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["schema", "references", "metadata", "ruleSet", "id", "name", "subject", "version", "properties"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(st.binary(max_size=40) | values.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_decoded_or_rejected(body: bytes) -> None:
    for operation in (REGISTER, ALTER_CONFIG):
        with suppress(RegistryError):
            decode_body(operation, body)


def pad(size: int) -> str:
    return "x" * size


def test_metadata_and_rules_are_limited() -> None:
    empty = len(json.dumps({"properties": {"a": ""}}, separators=(",", ":"))) + len("null")
    filled = {"properties": {"a": pad(SCHEMA_PROPERTIES_BYTES_MAX - empty)}}
    assert decode(json.dumps({"schema": "s", "metadata": filled}, separators=(",", ":")).encode()).metadata is not None
    filled["properties"]["a"] += "x"
    with pytest.raises(RegistryError, match="metadata and the rule set") as raised:
        decode(json.dumps({"schema": "s", "metadata": filled}, separators=(",", ":")).encode())
    assert raised.value.error_code == 42209


def test_references_are_limited() -> None:
    with pytest.raises(RegistryError, match="at most 1000 references") as raised:
        decode({"schema": "s", "references": [{"name": pad(REFERENCES_BYTES_MAX), "subject": "a", "version": 1}]})
    assert raised.value.error_code == 42201


def test_number_of_references_is_limited() -> None:
    reference = {"name": "", "subject": "", "version": 1}
    with pytest.raises(RegistryError, match="at most 1000 references") as raised:
        decode({"schema": "s", "references": [reference] * 1001})
    assert raised.value.error_code == 42201
    assert len(decode({"schema": "s", "references": [reference] * 1000}).references) == 1000


def test_config_body_is_limited() -> None:
    with pytest.raises(RegistryError, match="The body has more than") as raised:
        decode({"alias": pad(CONFIG_BODY_BYTES_MAX)}, ALTER_CONFIG)
    assert raised.value.error_code == 42209
