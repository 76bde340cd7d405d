"""Fuzzing of the admin API with valid and invalid requests derived from the OpenAPI document.

Responses must never be 500 and must match their schema. Uses a small generator, and schemathesis if it is installed.
"""

from __future__ import annotations

import json
import random
import string
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest

from chronik.console.rest.openapi import ERROR_DESCRIPTIONS, build_document
from chronik.console.rest.operation_table import OPERATIONS, RestOperation
from tests import run_size
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient, ApiResponse, basic_auth
from tests.console.rest.conftest import PASSWORD

ROOT = Path(__file__).parents[3]
SCHEMATHESIS = ROOT / ".tools" / "schemathesis" / "bin" / "st"
"""Installed in a separate environment, because its plugin slows down pytest."""

ROUNDS = run_size.sized(8, 2_000)
LOGINS = run_size.sized(8, 50)
"""Fewer rounds for the login operation, because failed logins are delayed."""

NAMES = ("fuzzed", "fuzzed-2", "nothing", "a b", "ä/ö", "..", "x" * 300, "\u202e", "%00", "0")
TEXTS = ("", "start", "end", "-5", "@2026-01-01", "@", "~0:1", "5", "+5", "null", "[]", "\x00", "😀", "x" * 2000)
NUMBERS = (0, 1, -1, 5, 2**31 - 1, 2**31, -(2**63), 2**63 - 1, 2**64, 10**30, 1.5)
OTHERS: tuple[Any, ...] = (None, True, "", "x", 5, -1, 1.5, [], {}, [[]], {"x": {}}, "x" * 3000)

DOCUMENT = build_document()
SCHEMAS = DOCUMENT["components"]["schemas"]


class Generator:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def value(self, schema: dict[str, Any], depth: int = 0) -> Any:
        """Generate a value that matches the schema, or almost."""
        choose = self._random.choice
        if "$ref" in schema:
            return self.value(SCHEMAS[schema["$ref"].rpartition("/")[2]], depth)
        if "anyOf" in schema:
            return self.value(choose(schema["anyOf"]), depth)
        if "enum" in schema:
            return choose(schema["enum"])
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            count = max(schema.get("minItems", 0), self._random.randrange(3))
            return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]
        if kind in ("integer", "number"):
            low, high = schema.get("minimum", -5), schema.get("maximum", 5)
            return choose([low, high, min(max(1, low), high)])
        if kind == "boolean":
            return choose([True, False])
        return None if kind == "null" else choose([*NAMES, *TEXTS])

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        found = {
            name: self.value(inner, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if name in required or self._random.random() < 0.7
        }
        if "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
            keys = [self._random.choice(["0", "1", "retention.ms", "producer_byte_rate", "x"]) for _ in range(2)]
            found |= {key: self.value(schema["additionalProperties"], depth + 1) for key in keys}
        return found

    def mutate(self, value: Any) -> Any:
        """Return the value with one random change."""
        choose = self._random.choice
        if isinstance(value, dict) and value and self._random.random() < 0.8:
            key = choose(list(value))
            change = choose(["gone", "other", "inner", "more"])
            if change == "gone":
                return {name: each for name, each in value.items() if name != key}
            if change == "more":
                return value | {self.word(): choose(OTHERS)}
            return value | {key: self.mutate(value[key]) if change == "inner" else choose([*OTHERS, *NUMBERS])}
        if isinstance(value, list) and value and self._random.random() < 0.8:
            return [*value, choose(OTHERS)]
        return choose([*OTHERS, *NUMBERS])

    def word(self) -> str:
        return "".join(self._random.choices(string.printable, k=self._random.randrange(1, 8)))

    def path(self, description: dict[str, Any], template: str) -> str:
        for each in description["parameters"]:
            if each["in"] == "path":
                value = self._random.choice([*NAMES, "1", "7"]) if self._random.random() < 0.9 else self.word()
                template = template.replace(f"{{{each['name']}}}", quote(str(value), safe=""))
        query = {
            each["name"]: self.value(each["schema"]) if self._random.random() < 0.7 else self._random.choice(TEXTS)
            for each in description["parameters"]
            if each["in"] == "query" and self._random.random() < 0.6
        }
        detail = {name: json.dumps(value) if isinstance(value, bool) else value for name, value in query.items()}
        return template + (f"?{urlencode(detail)}" if detail else "")


def check(operation: RestOperation, answer: ApiResponse) -> None:
    detail = f"{operation.id}: {answer}"
    if answer.status == operation.status:
        if operation.media_types:
            assert answer.headers["content-type"] in operation.media_types, detail
        elif operation.events is None:
            msgspec.json.decode(answer.body, type=operation.response)
        return
    assert answer.status in ERROR_DESCRIPTIONS, detail
    assert answer.json["error"], detail


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.id)
def test_responses_match_openapi_document(
    node: AuthorizingNode, operation: RestOperation, request: pytest.FixtureRequest
) -> None:
    root = ApiClient(node.http, authorization=basic_auth("root", PASSWORD))
    root.post("/topics", {"name": "fuzzed", "partitions": 2})
    generator = Generator(run_size.SEED)
    description = DOCUMENT["paths"][operation.path][operation.method.lower()]
    for number in range(ROUNDS if operation.id != "session_login" else LOGINS):
        path = generator.path(description, operation.path)
        body = None
        if operation.body is not None:
            body = generator.value(description["requestBody"]["content"]["application/json"]["schema"])
            if number % 2:
                body = generator.mutate(body)
            if operation.id == "quotas_put" and isinstance(body, dict):  # do not throttle the test client
                body["entity"] = {"user": "fuzzed"}
        if operation.events is None:
            check(operation, root.send(operation.method, path, json.dumps(body).encode() if body is not None else None))
        else:
            check(operation, root.first_event(path, waits_for_event=False))


EXCLUDED_OPERATIONS = (
    "live_stream",
    "searching_tail",
    "searching_search",
    "statistics_compute",
    "quotas_put",
    *(("session_login", "users_put") if run_size.IS_LONG_RUN else ()),
)
"""Streams, and operations that could slow down the test client, such as logins. The generator covers them."""

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@pytest.mark.slow
def test_schemathesis_finds_no_issues(node: AuthorizingNode, tmp_path: Path) -> None:
    if not SCHEMATHESIS.exists():
        pytest.skip(f"{SCHEMATHESIS.relative_to(ROOT)} is not installed: run make")
    description = tmp_path / "openapi.json"
    description.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    command = [str(SCHEMATHESIS), "run", str(description), "--url", f"http://{node.http}/api/v1"]
    command += ["--header", f"Authorization: {basic_auth('root', PASSWORD)}", "--checks", ",".join(CHECKS)]
    command += [
        "--max-examples",
        str(run_size.sized(2, 100)),
        "--seed",
        str(run_size.SEED),
        "--generation-database",
        "none",
    ]
    command += [
        "--phases",
        "coverage,fuzzing" if run_size.IS_LONG_RUN else "fuzzing",
        "--continue-on-failure",
        "--no-color",
    ]
    command += [part for name in EXCLUDED_OPERATIONS for part in ("--exclude-operation-id", name)]
    command += ["--warnings", "off", "--suppress-health-check", "all", "--workers", "1"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=7200, check=False)
    assert finished.returncode == 0, finished.stdout[-20_000:] + finished.stderr
    assert "No issues found" in finished.stdout
