"""Attacks on the schema registry over one HTTP connection: hostile schemas, and subjects that take long to check."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from chronik.limits import SCHEMA_REFERENCES_MAX, SUBJECT_VERSIONS_MAX
from tests.abuse.attack import Attack, AttackTarget
from tests.abuse.budget import MIB, AttackBudget
from tests.abuse.hostile_schemas import AVRO, HostileSchema, build_schemas

ANSWER_SECONDS_MAX: Final = 60.0
SMALL_SCALE: Final = 20
SUBJECT: Final = "hostile"
VERSIONS_FEW: Final = 100

BUDGET: Final = AttackBudget(
    memory_bytes=200 * MIB,  # parsed schemas take up to 100 MB, and are cached
    memory_per_request=0.0,
)


class RegistryConnection:
    """A connection to the registry of the attacked node that counts the bytes it sends."""

    def __init__(self, target: AttackTarget) -> None:
        self._connection = http.client.HTTPConnection(*target.http, timeout=ANSWER_SECONDS_MAX)
        self._target = target

    def __enter__(self) -> RegistryConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Send a request, and return the status and the body of the response."""
        data = b"" if body is None else json.dumps(body).encode()
        self._connection.request(method, f"/registry{path}", data, {"Content-Type": "application/json"})
        self._target.meter.add(len(data))
        response = self._connection.getresponse()
        return response.status, response.read()

    def expect(self, method: str, path: str, body: Any = None) -> bytes:
        """Send a request that must succeed, and return the body of the response."""
        status, content = self.request(method, path, body)
        assert status == HTTPStatus.OK, f"{method} {path}: status {status}: {content[:200]!r}"
        return content


def _send_schemas(prefix: str) -> Callable[[AttackTarget], None]:
    """Return a strike that registers the hostile schemas of a format, and compares them with later versions."""

    def strike(target: AttackTarget) -> None:
        schemas = build_schemas(target.count(SMALL_SCALE, 1))
        with RegistryConnection(target) as connection:
            for name, schema in schemas.items():
                if name.startswith(prefix):
                    _send_schema(connection, name, schema)

    return strike


def _send_schema(connection: RegistryConnection, name: str, schema: HostileSchema) -> None:
    """Register a schema, and compare and register a later version. The registry may reject any of these."""
    first = {"schemaType": schema.schema_type, "schema": schema.text}
    later = first | {"schema": schema.later or schema.text}
    for method, path, body in (
        ("PUT", f"/config/{name}", {"compatibility": "FULL_TRANSITIVE"}),
        ("POST", f"/subjects/{name}/versions?normalize=true", first),
        ("POST", f"/compatibility/subjects/{name}/versions?verbose=true", later),
        ("POST", f"/subjects/{name}/versions", later),
        ("GET", f"/subjects/{name}/versions/latest?format=resolved", None),
    ):
        status, content = connection.request(method, path, body)
        # 503 is the response to schemas whose comparison takes too long.
        assert status < HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.SERVICE_UNAVAILABLE, content[:500]


def _record(number: int, references: int = 0) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": "int", "default": 0}]
    names = [{"name": f"r{each}", "subject": f"r{each}", "version": 1} for each in range(references)]
    return {
        "schemaType": AVRO,
        "schema": json.dumps({"type": "record", "name": "R", "fields": fields}),
        "references": names,
    }


def _register_versions(target: AttackTarget) -> None:
    """Register as many versions of a subject as it may have, each of which is compared by a transitive check."""
    with RegistryConnection(target) as connection:
        connection.expect("PUT", f"/config/{SUBJECT}", {"compatibility": "NONE"})
        for number in range(target.count(VERSIONS_FEW, SUBJECT_VERSIONS_MAX - 1)):
            connection.expect("POST", f"/subjects/{SUBJECT}/versions", _record(number))
        connection.expect("PUT", f"/config/{SUBJECT}", {"compatibility": "FULL_TRANSITIVE"})


def _check_versions(target: AttackTarget) -> None:
    with RegistryConnection(target) as connection:
        for number in range(target.count(2, 10)):
            body = _record(SUBJECT_VERSIONS_MAX + number)
            connection.request("POST", f"/compatibility/subjects/{SUBJECT}/versions", body)
            connection.request("POST", f"/subjects/{SUBJECT}", body)


def _register_versions_with_references(target: AttackTarget) -> None:
    """Register versions that refer to as many schemas as they may, which refer to each other."""
    referenced = target.count(50, SCHEMA_REFERENCES_MAX)
    with RegistryConnection(target) as connection:
        for number in range(referenced):
            body = _record(number, min(number, 19))
            body["schema"] = json.dumps({"type": "fixed", "name": f"F{number}", "size": 1})
            connection.expect("POST", f"/subjects/r{number}/versions", body)
        connection.expect("PUT", f"/config/{SUBJECT}", {"compatibility": "NONE"})
        for number in range(target.count(5, 50)):
            connection.expect("POST", f"/subjects/{SUBJECT}/versions", _record(number, referenced))
        connection.expect("PUT", f"/config/{SUBJECT}", {"compatibility": "FULL_TRANSITIVE"})


def _send_too_many_references(target: AttackTarget) -> None:
    """Send as many references as fit into a request."""
    reference = {"name": "", "subject": "", "version": 1}
    body = {"schema": '"int"', "references": [reference] * target.count(1_000, 25_000)}
    with RegistryConnection(target) as connection:
        for _ in range(target.count(2, 20)):
            status, content = connection.request("POST", f"/subjects/{SUBJECT}/versions", body)
            assert status == HTTPStatus.UNPROCESSABLE_ENTITY, content[:500]


def _register_large_schemas(target: AttackTarget) -> None:
    """Register different schemas of 1 MiB, and delete some of them."""
    with RegistryConnection(target) as connection:
        for number in range(target.count(5, 150)):
            padding = "x" * target.count(50_000, MIB - 1_000)
            body = {"schema": json.dumps({"type": "fixed", "name": f"F{number}", "size": 1, "doc": padding})}
            connection.request("POST", f"/subjects/large{number}/versions", body)


ATTACKS: Final = (
    *(
        Attack(f"registry-{kind}-schemas", f"hostile {title} schemas of up to 1 MiB", _send_schemas(kind), quick=True,
               budget=BUDGET)
        for kind, title in (("avro", "Avro"), ("json", "JSON"), ("protobuf", "Protobuf"))
    ),
    Attack("registry-transitive-checks", f"checks against {SUBJECT_VERSIONS_MAX} versions", _check_versions,
           _register_versions, budget=BUDGET),
    Attack("registry-transitive-references", "checks against 50 versions with 1,000 references each", _check_versions,
           _register_versions_with_references, quick=True, budget=BUDGET),
    Attack("registry-many-references", "registrations with 25,000 references", _send_too_many_references,
           budget=BUDGET),
    Attack("registry-large-schemas", "registrations of 150 different schemas of 1 MiB", _register_large_schemas,
           budget=AttackBudget(memory_bytes=400 * MIB, memory_per_request=0.0)),  # see SCHEMAS_BYTES_MAX
)  # fmt: skip
