"""A test case for each operation of the registry: preparation, request, and the result without permissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.console.registry.registry_api import RegistryApi

DENIED, EMPTY, ABSENT, PUBLIC = "denied", "empty", "absent", "for all"
"""The result without permissions: 403, an empty list, the same as for an id that does not exist, or as with them."""

SCHEMA = '{"type":"record","name":"Secret","fields":[]}'
CONTEXT = ":.secret-context:"

Prepare = Callable[[RegistryApi], None]


def prepare_nothing(root: RegistryApi) -> None:
    pass


def prepare_subject(root: RegistryApi) -> None:
    root.register("secret-value", SCHEMA)


def prepare_metadata(root: RegistryApi) -> None:
    root.register("secret-metadata", SCHEMA, metadata={"properties": {"owner": "secret"}})


def prepare_context(root: RegistryApi) -> None:
    root.register(f"{CONTEXT}orders", SCHEMA)


def prepare_empty_context(root: RegistryApi) -> None:
    root.register(":.secret-empty:orders", SCHEMA)
    for query in ("", "?permanent=true"):
        assert root.send("DELETE", f"/subjects/:.secret-empty:orders{query}").status == 200


def prepare_config(root: RegistryApi) -> None:
    prepare_subject(root)
    assert root.send("PUT", "/config/secret-value", {"compatibility": "FULL"}).status == 200


def prepare_mode(root: RegistryApi) -> None:
    prepare_subject(root)
    assert root.send("PUT", "/mode/secret-value", {"mode": "READWRITE"}).status == 200


def prepare_global_config(root: RegistryApi) -> None:
    assert root.send("PUT", "/config", {"compatibility": "BACKWARD"}).status == 200


def prepare_global_mode(root: RegistryApi) -> None:
    assert root.send("PUT", "/mode", {"mode": "READWRITE"}).status == 200


class RegistryOperationCase(NamedTuple):
    path: str
    """The path and the query; `{id}` and `{guid}` stand for those of SCHEMA in the default context."""
    body: Any = None
    prepare: Prepare = prepare_subject
    unauthorized_result: str = DENIED


BODY = {"schema": SCHEMA}
OTHER_BODY = {"schema": '{"type":"record","name":"Secret","fields":[{"name":"a","type":"int","default":0}]}'}

CASES = {
    "GET /": RegistryOperationCase("/", unauthorized_result=PUBLIC),
    "POST /": RegistryOperationCase("/", {}, unauthorized_result=PUBLIC),
    "GET /subjects": RegistryOperationCase("/subjects", unauthorized_result=EMPTY),
    "POST /subjects/{subject}": RegistryOperationCase("/subjects/secret-value", BODY),
    "DELETE /subjects/{subject}": RegistryOperationCase("/subjects/secret-value"),
    "GET /subjects/{subject}/metadata": RegistryOperationCase(
        "/subjects/secret-metadata/metadata?key=owner&value=secret", prepare=prepare_metadata
    ),
    "GET /subjects/{subject}/versions": RegistryOperationCase("/subjects/secret-value/versions"),
    "POST /subjects/{subject}/versions": RegistryOperationCase("/subjects/secret-value/versions", OTHER_BODY),
    "GET /subjects/{subject}/versions/{version}": RegistryOperationCase("/subjects/secret-value/versions/latest"),
    "DELETE /subjects/{subject}/versions/{version}": RegistryOperationCase("/subjects/secret-value/versions/latest"),
    "GET /subjects/{subject}/versions/{version}/schema": RegistryOperationCase(
        "/subjects/secret-value/versions/latest/schema"
    ),
    "GET /subjects/{subject}/versions/{version}/referencedby": RegistryOperationCase(
        "/subjects/secret-value/versions/latest/referencedby"
    ),
    "GET /schemas": RegistryOperationCase("/schemas", unauthorized_result=EMPTY),
    "GET /schemas/types": RegistryOperationCase("/schemas/types", unauthorized_result=PUBLIC),
    "GET /schemas/ids/{id}": RegistryOperationCase("/schemas/ids/{id}", unauthorized_result=ABSENT),
    "GET /schemas/ids/{id}/schema": RegistryOperationCase("/schemas/ids/{id}/schema", unauthorized_result=ABSENT),
    "GET /schemas/ids/{id}/subjects": RegistryOperationCase(
        "/schemas/ids/{id}/subjects", unauthorized_result=ABSENT
    ),
    "GET /schemas/ids/{id}/versions": RegistryOperationCase(
        "/schemas/ids/{id}/versions", unauthorized_result=ABSENT
    ),
    "GET /schemas/guids/{guid}": RegistryOperationCase("/schemas/guids/{guid}", unauthorized_result=ABSENT),
    "GET /schemas/guids/{guid}/ids": RegistryOperationCase("/schemas/guids/{guid}/ids", unauthorized_result=ABSENT),
    "POST /compatibility/subjects/{subject}/versions": RegistryOperationCase(
        "/compatibility/subjects/secret-value/versions", BODY
    ),
    "POST /compatibility/subjects/{subject}/versions/{version}": RegistryOperationCase(
        "/compatibility/subjects/secret-value/versions/latest?verbose=true", BODY
    ),
    "GET /config": RegistryOperationCase("/config", prepare=prepare_nothing),
    "PUT /config": RegistryOperationCase("/config", {"compatibility": "BACKWARD"}, prepare_nothing),
    "DELETE /config": RegistryOperationCase("/config", prepare=prepare_global_config),
    "GET /config/{subject}": RegistryOperationCase("/config/secret-value", prepare=prepare_config),
    "PUT /config/{subject}": RegistryOperationCase("/config/secret-value", {"compatibility": "NONE"}),
    "DELETE /config/{subject}": RegistryOperationCase("/config/secret-value", prepare=prepare_config),
    "GET /mode": RegistryOperationCase("/mode", prepare=prepare_nothing),
    "PUT /mode": RegistryOperationCase("/mode", {"mode": "READWRITE"}, prepare_nothing),
    "DELETE /mode": RegistryOperationCase("/mode", prepare=prepare_global_mode),
    "GET /mode/{subject}": RegistryOperationCase("/mode/secret-value", prepare=prepare_mode),
    "PUT /mode/{subject}": RegistryOperationCase("/mode/secret-value", {"mode": "READWRITE"}),
    "DELETE /mode/{subject}": RegistryOperationCase("/mode/secret-value", prepare=prepare_mode),
    "GET /contexts": RegistryOperationCase("/contexts", prepare=prepare_context, unauthorized_result=EMPTY),
    "DELETE /contexts/{context}": RegistryOperationCase("/contexts/.secret-empty", prepare=prepare_empty_context),
    "GET /v1/metadata/id": RegistryOperationCase("/v1/metadata/id", unauthorized_result=PUBLIC),
    "GET /v1/metadata/version": RegistryOperationCase("/v1/metadata/version", unauthorized_result=PUBLIC),
    "GET /openapi.json": RegistryOperationCase("/openapi.json", unauthorized_result=PUBLIC),
}  # fmt: skip
"""Cases by method and path."""
