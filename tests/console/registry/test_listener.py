"""The two ports of a node that serve its schema registry: methods, content types, credentials, limits and errors."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator

import pytest

from chronik.console.http import BODY_BYTES_MAX
from chronik.console.registry.operation_table import OPERATIONS
from chronik.limits import SCHEMA_BYTES_MAX
from chronik.metadata.commands.security import AlterQuotas, QuotaAlteration
from tests.api.authorizing_node import AuthorizingNode
from tests.console.registry.registry_api import CONTENT_TYPE, PASSWORD, RegistryApi
from tests.console.rest.api_client import ApiClient, basic_auth

SCHEMA = '{"type":"record","name":"A","fields":[]}'
UNAUTHENTICATED_BODY_BYTES = 16 * 1024


def own_address(node: AuthorizingNode) -> str:
    """Return the address of the registry's own listener."""
    assert node._node.registry_url is not None
    return node._node.registry_url.partition("://")[2]


@pytest.fixture(params=["http", "own"])
def base(request: pytest.FixtureRequest, node: AuthorizingNode) -> tuple[str, str]:
    """The address and the base path of each port that serves the registry."""
    return (node.http, "/registry") if request.param == "http" else (own_address(node), "")


@pytest.fixture
def root(base: tuple[str, str]) -> RegistryApi:
    return RegistryApi(base[0], "root", base[1])


def test_both_ports_serve_the_same_registry(node: AuthorizingNode) -> None:
    RegistryApi(node.http, "root").register("shared", SCHEMA)
    own = RegistryApi(own_address(node), "root", "")
    assert own.get("/subjects/shared/versions").json == [1]


def test_root_is_found_with_and_without_slash(root: RegistryApi) -> None:
    assert root.get("/").json == {}
    assert root.get("/subjects/").status == 200


def test_own_listener_serves_nothing_else(node: AuthorizingNode) -> None:
    own = RegistryApi(own_address(node), "root", "")
    for path in ("/metrics", "/status", "/healthz", "/api/v1/topics", "/registry/subjects", "/ui/"):
        assert own.get(path).error_code == 404


def test_head_and_options_are_answered(root: RegistryApi, base: tuple[str, str]) -> None:
    head = root.send("HEAD", "/subjects")
    assert (head.status, head.body, int(head.headers["content-length"]) > 0) == (200, b"", True)
    options = RegistryApi(base[0], None, base[1]).send("OPTIONS", "/subjects/a/versions")
    assert (options.status, options.headers["allow"]) == (200, "GET, POST, HEAD, OPTIONS")
    assert "access-control-allow-origin" not in options.headers


def test_unsupported_method_is_rejected_with_allowed_ones(root: RegistryApi) -> None:
    rejected = root.send("PUT", "/subjects", {})
    assert (rejected.status, rejected.error_code, rejected.headers["allow"]) == (405, 405, "GET, HEAD, OPTIONS")
    assert root.send("PATCH", "/config", {}).error_code == 405


def test_unsupported_api_has_error_with_name(root: RegistryApi) -> None:
    for path, status in (("/exporters", 501), ("/dek-registry/v1/keks", 501), ("/associations/resources/-/a", 404)):
        rejected = root.get(path)
        assert (rejected.status, rejected.error_code) == (status, status)
        assert "does not support" in rejected.json["message"]
    tags = {"schemaTagsToAdd": [{"schemaEntity": {"entityPath": "A"}, "tags": ["PII"]}]}
    assert root.post("/subjects/tagged/versions", {"schema": SCHEMA, **tags}).error_code == 501
    assert root.get("/subjects/tagged/versions").error_code == 40401


def test_errors_have_codes_of_confluent(root: RegistryApi) -> None:
    for method, path, body, status, code in (
        ("GET", "/nothing", None, 404, 404),
        ("GET", "/subjects/absent/versions", None, 404, 40401),
        ("GET", "/subjects/absent/versions/x", None, 422, 42202),
        ("GET", "/schemas/ids/98765", None, 404, 40403),
        ("GET", "/config/absent", None, 404, 40408),
        ("GET", "/mode/absent", None, 404, 40409),
        ("POST", "/subjects/a/versions", {"schema": "{"}, 422, 42201),
        ("POST", "/subjects/a/versions", b"{", 400, 400),
        ("PUT", "/config", {"compatibility": "SOME"}, 422, 42203),
        ("PUT", "/mode", {"mode": "SOME"}, 422, 42204),
        ("PUT", "/mode", {}, 422, 42204),
    ):
        answer = root.send(method, path, body)
        assert (answer.status, answer.error_code) == (status, code), (path, answer)
        assert answer.json["message"]


@pytest.mark.parametrize("content_type", [CONTENT_TYPE, "application/json", "application/octet-stream"])
def test_body_in_each_content_type_is_accepted(root: RegistryApi, content_type: str) -> None:
    answer = root.send("POST", "/subjects/typed/versions", {"schema": SCHEMA}, content_type=content_type)
    assert answer.status == 200


def test_body_of_html_form_is_rejected(root: RegistryApi) -> None:
    answer = root.send("POST", "/subjects/form/versions", b"schema=x", content_type="application/x-www-form-urlencoded")
    assert answer.error_code == 415


def test_response_has_accepted_content_type(root: RegistryApi) -> None:
    answer = root.get("/subjects", accept="application/json")
    assert answer.headers["content-type"] == "application/json"
    assert root.get("/subjects", accept="text/html").status == 406


def test_cross_site_request_is_rejected(root: RegistryApi) -> None:
    rejected = root.post("/subjects/a/versions", {"schema": SCHEMA}, origin="http://evil.example")
    assert (rejected.status, rejected.error_code) == (403, 403)


def test_request_with_other_host_name_is_rejected(root: RegistryApi) -> None:
    assert root.send("GET", "/subjects", host="evil.example").status == 421


def test_challenge_opens_no_dialog_of_browsers_on_http_port(node: AuthorizingNode) -> None:
    assert RegistryApi(node.http).get("/subjects").headers["www-authenticate"] == "Chronik-Session"
    own = RegistryApi(own_address(node), None, "")
    assert own.get("/subjects").headers["www-authenticate"] == 'Basic realm="chronik"'


def test_session_of_console_is_valid_for_registry(node: AuthorizingNode) -> None:
    browser = ApiClient(node.http)
    assert browser.log_in("root", PASSWORD).status == 200
    assert browser.get("//registry/subjects", accept="application/json").status == 200


def test_large_body_is_read_only_after_authentication(node: AuthorizingNode, base: tuple[str, str]) -> None:
    text = json.dumps({"type": "record", "name": "A", "fields": [], "doc": "x" * (SCHEMA_BYTES_MAX - 100)})
    large = RegistryApi(base[0], "root", base[1]).post("/subjects/large/versions", {"schema": text})
    assert large.status == 200
    too_large = RegistryApi(base[0], "root", base[1]).post("/subjects/large/versions", {"schema": f"{text}{' ' * 200}"})
    assert too_large.error_code == 42209
    host, port = base[0].split(":")
    head = f"POST {base[1]}/subjects/large/versions HTTP/1.1\r\nHost: localhost\r\nContent-Type: {CONTENT_TYPE}\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"{head}Content-Length: {UNAUTHENTICATED_BODY_BYTES + 1}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")
    assert (
        RegistryApi(base[0], "root", base[1]).post("/subjects/large/versions", b" " * (BODY_BYTES_MAX + 1)).status
        == 413
    )


def test_long_list_of_schemas_is_sent_in_chunks(root: RegistryApi) -> None:
    for number in range(3):
        fields = [{"name": "a", "type": "string", "default": "", "doc": "x" * 50_000 + str(number)}]
        root.register("long-list", json.dumps({"type": "record", "name": "A", "fields": fields}))
    answer = root.get("/schemas?subjectPrefix=long-list")
    assert answer.headers["transfer-encoding"] == "chunked"
    assert [each["version"] for each in answer.json] == [1, 2, 3]
    assert root.get("/schemas?subjectPrefix=none").json == []


def test_requests_are_counted_by_operation_and_error_code(node: AuthorizingNode, root: RegistryApi) -> None:
    meter = node.services.registry_meter
    assert root.get("/schemas/types").status == 200
    before = meter.errors["GetSchemaById", 40403], meter.latencies["ListTypes"].count
    assert root.get("/schemas/types").status == 200
    assert root.get("/schemas/ids/98765").status == 404
    assert (meter.errors["GetSchemaById", 40403], meter.latencies["ListTypes"].count) == (before[0] + 1, before[1] + 1)
    assert set(meter.latencies) <= {operation.api for operation in OPERATIONS}
    page = ApiClient(node.http, authorization=basic_auth("root", PASSWORD)).get("//metrics").body.decode()
    assert 'chronik_registry_request_seconds_count{operation="ListTypes"}' in page
    assert 'chronik_registry_errors_total{operation="GetSchemaById",code="40403"}' in page


@pytest.fixture
def audited(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "chronik.audit"):
        yield caplog


def test_changes_and_denials_are_written_to_audit_log(
    root: RegistryApi, base: tuple[str, str], audited: pytest.LogCaptureFixture
) -> None:
    root.register("audited", SCHEMA)
    assert root.get("/subjects/audited/versions").status == 200
    assert root.send("DELETE", "/subjects/audited/versions/9").status == 404
    assert root.send("PUT", "/mode", {"mode": "READWRITE"}).status == 200
    assert RegistryApi(base[0], "mallory", base[1]).get("/subjects/audited/versions/1").status == 403
    events = [json.loads(each.getMessage()) for each in audited.records if each.name == "chronik.audit"]
    changed = [(each["api"], each["changed"]) for each in events if each["event"] == "changed"]
    assert changed == [("RegisterSchema", ["audited"]), ("AlterMode", ["global"])]
    (refused,) = [each for each in events if each["event"] == "refused"]
    assert (refused["principal"], refused["api"]) == ("User:mallory", "GetVersion")
    assert (refused["operation"], refused["resource"], refused["name"]) == ("Read", "Subject", "audited")


def test_changes_above_quota_are_rejected(node: AuthorizingNode, base: tuple[str, str]) -> None:
    entity = (("user", "root"),)
    root = RegistryApi(base[0], "root", base[1])
    node.propose(AlterQuotas((QuotaAlteration(entity, {"controller_mutation_rate": 0.1}),)))
    try:
        answers = [root.post("/subjects/quota/versions", {"schema": SCHEMA}) for _ in range(4)]
        assert answers[0].status == 200
        assert answers[-1].error_code == 429
        assert int(answers[-1].headers["retry-after"]) > 0
        assert root.get("/subjects/quota/versions").json == [1], "reads are not limited"
    finally:
        node.propose(AlterQuotas((QuotaAlteration(entity, {}, ("controller_mutation_rate",)),)))
