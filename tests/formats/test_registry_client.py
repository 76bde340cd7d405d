"""The client of schema registries: lookups, references, caching, retries and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from uuid import UUID

import pytest

from chronik.errors import ConfigError
from chronik.formats.codec import ReferencedSchema, UnsupportedSchemaError, ValueFormat, WriterSchema
from chronik.formats.registry_client import (
    ATTEMPTS_MAX,
    CACHED_SCHEMAS_MAX,
    REFERENCE_DEPTH_MAX,
    REFERENCES_MAX,
    UNKNOWN_SECONDS,
    RegistryClient,
    RegistryRequestError,
    RegistrySettings,
    RegistryUnavailableError,
    SchemaUnknownError,
    SchemaVersionReference,
    parse_registry_settings,
)
from tests.formats.http_registry import HttpRegistry


@pytest.fixture
def registry() -> Iterator[HttpRegistry]:
    started = HttpRegistry()
    yield started
    started.stop()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Connect(Protocol):
    def __call__(self, url: str | None = None, *, token: str = "") -> RegistryClient: ...


@pytest.fixture
def connect(registry: HttpRegistry, clock: Clock) -> Iterator[Connect]:
    clients: list[RegistryClient] = []

    def create(url: str | None = None, *, token: str = "") -> RegistryClient:
        settings = RegistrySettings(url or registry.url, token=token)
        clients.append(RegistryClient(settings, monotonic=clock.monotonic, sleep=clock.sleep))
        return clients[-1]

    yield create
    for client in clients:
        client.close()


def test_schema_is_fetched_once_by_id(registry: HttpRegistry, connect: Connect) -> None:
    id = registry.add("orders-value", '"int"')
    client = connect()
    assert client.fetch_schema(id) == client.fetch_schema(id) == WriterSchema(ValueFormat.AVRO, '"int"')
    assert registry.requests == ["/schemas/ids/1"]
    client.close()


def test_schema_is_fetched_by_guid(registry: HttpRegistry, connect: Connect) -> None:
    guid = registry.guid(registry.add("orders-value", "{}", "JSON"))
    assert connect().fetch_schema(guid) == WriterSchema(ValueFormat.JSON_SCHEMA, "{}")
    assert registry.requests == [f"/schemas/guids/{guid}"]


def test_references_come_before_schemas_that_refer_to_them(registry: HttpRegistry, connect: Connect) -> None:
    registry.add("a", "message A {}", "PROTOBUF")
    registry.add("b", 'import "a";', "PROTOBUF", [{"name": "a", "subject": "a", "version": 1}])
    both = [{"name": "b", "subject": "b", "version": 1}, {"name": "a", "subject": "a", "version": 1}]
    id = registry.add("c", 'import "b"; import "a";', "PROTOBUF", both)
    schema = connect().fetch_schema(id)
    assert schema.format is ValueFormat.PROTOBUF
    assert schema.references == (ReferencedSchema("a", "message A {}"), ReferencedSchema("b", 'import "a";'))


def test_references_in_cycle_are_resolved_once(registry: HttpRegistry, connect: Connect) -> None:
    registry.add("a", '"a"', "AVRO", [{"name": "b", "subject": "b", "version": 1}])
    id = registry.add("b", '"b"', "AVRO", [{"name": "a", "subject": "a", "version": 1}])
    assert {each.name for each in connect().fetch_schema(id).references} == {"a", "b"}


def test_missing_reference_makes_schema_unsupported(registry: HttpRegistry, connect: Connect) -> None:
    id = registry.add("a", '"b"', "AVRO", [{"name": "b", "subject": "b", "version": 1}])
    with pytest.raises(UnsupportedSchemaError, match="refers to b, which is missing"):
        connect().fetch_schema(id)


def test_unknown_type_makes_schema_unsupported(registry: HttpRegistry, connect: Connect) -> None:
    id = registry.add("a", "x", "THRIFT")
    with pytest.raises(UnsupportedSchemaError, match="schemas of type THRIFT are not supported"):
        connect().fetch_schema(id)


def test_latest_version_of_subject_is_fetched(registry: HttpRegistry, connect: Connect) -> None:
    registry.add("a/b c", '"int"')
    registry.add("a/b c", '"long"')
    client = connect()
    found = client.fetch_latest("a/b c")
    assert found == ("a/b c", 2, 2, WriterSchema(ValueFormat.AVRO, '"long"'))
    client.fetch_schema(2)
    assert registry.requests == ["/subjects/a%2Fb%20c/versions/latest"]


def test_schema_is_registered(registry: HttpRegistry, connect: Connect) -> None:
    client = connect()
    registry.add("a", '"int"')
    schema = WriterSchema(ValueFormat.AVRO, '["int", "a"]')
    id = client.register("b", schema, (SchemaVersionReference("a", "a", 1),))
    assert client.fetch_schema(id) == schema._replace(references=(ReferencedSchema("a", '"int"'),))


def test_rejected_registration_reports_message_of_registry(registry: HttpRegistry, connect: Connect) -> None:
    registry.failures.append((409, {"error_code": 409, "message": "Schema being registered is\nincompatible"}))
    with pytest.raises(RegistryRequestError, match=f"{registry.url}: HTTP status 409: Schema being registered is inc"):
        connect().register("a", WriterSchema(ValueFormat.AVRO, '"int"'))


def test_unknown_schema_is_confirmed_and_not_requested_again_for_a_while(
    registry: HttpRegistry, connect: Connect, clock: Clock
) -> None:
    client = connect()
    for _ in range(2):
        with pytest.raises(SchemaUnknownError, match=f"{registry.url} has no schema with id 7"):
            client.fetch_schema(7)
    assert registry.requests == ["/schemas/ids/7"] * 2
    for _ in range(7):
        registry.add("a", str(len(registry.requests)) + str(_))
    clock.now += UNKNOWN_SECONDS
    assert client.fetch_schema(7).format is ValueFormat.AVRO


def test_unknown_guid_is_reported(registry: HttpRegistry, connect: Connect) -> None:
    with pytest.raises(SchemaUnknownError, match=f"has no schema with GUID {UUID(int=9)}"):
        connect().fetch_schema(UUID(int=9))


def test_schema_that_replica_does_not_have_yet_is_found_by_confirmation(
    registry: HttpRegistry, connect: Connect
) -> None:
    id = registry.add("a", '"int"')
    registry.hidden_requests[f"/schemas/ids/{id}"] = 1
    assert connect().fetch_schema(id).text == '"int"'


def test_page_that_is_not_of_registry_does_not_make_schema_unknown(registry: HttpRegistry, connect: Connect) -> None:
    registry.add("a", '"int"')
    with pytest.raises(RegistryUnavailableError, match="HTTP status 404; check the path of the URL"):
        connect(f"{registry.url}/wrong").fetch_schema(1)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_failing_request_is_retried_with_growing_delays(
    registry: HttpRegistry, connect: Connect, clock: Clock, status: int
) -> None:
    id = registry.add("a", '"int"')
    registry.failures += [(status, {"message": "busy"})] * (ATTEMPTS_MAX - 1)
    assert connect().fetch_schema(id).text == '"int"'
    assert clock.slept == [0.1, 0.2, 0.4]


def test_registry_that_keeps_failing_is_unavailable(registry: HttpRegistry, connect: Connect) -> None:
    registry.failures += [(500, {"message": "out of order"})] * ATTEMPTS_MAX
    with pytest.raises(RegistryUnavailableError, match="is not available: HTTP status 500: out of order"):
        connect().fetch_schema(1)
    assert not registry.failures


def test_stopped_registry_is_unavailable_until_its_start(registry: HttpRegistry, connect: Connect) -> None:
    id = registry.add("a", '"int"')
    client = connect()
    registry.stop()
    with pytest.raises(RegistryUnavailableError, match=f"schema registry {registry.url} is not available: .*refused"):
        client.fetch_schema(id)
    registry.start()
    assert client.fetch_schema(id).text == '"int"'


def test_patient_client_waits_for_the_registry(
    registry: HttpRegistry, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    id = registry.add("a", '"int"')
    settings = RegistrySettings(registry.url, patience_s=20.0)
    client = RegistryClient(settings, monotonic=clock.monotonic, sleep=clock.sleep)
    registry.failures += [(503, {"message": "starting"})] * 8
    assert client.fetch_schema(id).text == '"int"'
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert [each.getMessage() for each in caplog.records if each.name == "chronik.formats"] == [
        f"schema registry {registry.url} is not available: HTTP status 503: starting; retrying for 19 s"
    ]
    client.close()


def test_patient_client_waits_once_per_outage(registry: HttpRegistry, clock: Clock) -> None:
    id = registry.add("a", '"int"')
    settings = RegistrySettings(registry.url, patience_s=20.0)
    client = RegistryClient(settings, monotonic=clock.monotonic, sleep=clock.sleep)
    registry.stop()
    for waited in (20.0, 0.7):
        began = clock.now
        with pytest.raises(RegistryUnavailableError):
            client.fetch_schema(id)
        assert waited <= clock.now - began < waited + 2.1
    registry.start()
    assert client.fetch_schema(id).text == '"int"'
    client.close()


def test_next_url_is_used_if_one_fails(registry: HttpRegistry, connect: Connect) -> None:
    id = registry.add("a", '"int"')
    stopped = HttpRegistry()
    stopped.stop()
    assert connect(f"{stopped.url}, {registry.url}").fetch_schema(id).text == '"int"'


def test_second_url_confirms_unknown_schema(registry: HttpRegistry, connect: Connect) -> None:
    id = registry.add("a", '"int"')
    other = HttpRegistry()
    assert connect(f"{other.url},{registry.url}").fetch_schema(id).text == '"int"'
    other.stop()


@pytest.mark.parametrize("status", [401, 403])
def test_missing_permission_is_reported(registry: HttpRegistry, connect: Connect, status: int) -> None:
    registry.failures.append((status, {"error_code": status, "message": "no permission"}))
    with pytest.raises(RegistryRequestError, match=f"HTTP status {status}: no permission") as raised:
        connect().fetch_schema(1)
    assert not isinstance(raised.value, SchemaUnknownError)


def test_credentials_are_sent_and_not_shown(registry: HttpRegistry, connect: Connect) -> None:
    id = registry.add("a", '"int"')
    with_login = registry.url.replace("//", "//ada:p%40ss@")
    for settings in (parse_registry_settings(with_login), RegistrySettings(registry.url, "ada:p@ss")):
        client = RegistryClient(settings)
        client.fetch_schema(id)
        client.close()
        assert registry.headers.pop()["Authorization"] == "Basic YWRhOnBAc3M="
        assert "p@ss" not in repr(settings)
        assert "p%40ss" not in repr(settings)
        assert settings.display_url == registry.url
    connect(token="secret").fetch_schema(id)
    assert registry.headers.pop()["Authorization"] == "Bearer secret"


def test_cache_is_bounded(registry: HttpRegistry, connect: Connect) -> None:
    client = connect()
    for number in range(CACHED_SCHEMAS_MAX + 1):
        client.fetch_schema(registry.add("a", f'"{number}"'))
    count = len(registry.requests)
    client.fetch_schema(2)
    assert len(registry.requests) == count
    client.fetch_schema(1)
    assert len(registry.requests) == count + 1


@pytest.mark.parametrize(
    "url", ["", "localhost:8081", "ftp://x", "http://", "http://x:y", "http://x?a=1", "http://a,b", "http://x:99999"]
)
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigError, match="invalid registry URL"):
        parse_registry_settings(url)


def test_unknown_setting_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"unknown registry setting 'ssl.ca'"):
        parse_registry_settings("http://x", {"ssl.ca": "a"})
    parsed = parse_registry_settings("http://x", {"ssl.ca.location": "a", "basic.auth.user.info": "u:p"})
    assert (parsed.ca_file, parsed.login) == ("a", "u:p")


def test_setting_without_support_is_rejected() -> None:
    for name, value in (
        ("basic.auth.credentials.source", "SASL_INHERIT"),
        ("bearer.auth.credentials.source", "OAUTHBEARER"),
        ("ssl.keystore.type", "JKS"),
        ("ssl.endpoint.identification.algorithm", "none"),
    ):
        with pytest.raises(ConfigError, match=f"registry setting {name} = '{value}': expected "):
            parse_registry_settings("http://x", {name: value})
    with pytest.raises(ConfigError, match=r"'ssl.ca.locatoin'; did you mean 'ssl.ca.location'\?"):
        parse_registry_settings("http://x", {"ssl.ca.locatoin": "a"})


def test_names_of_java_settings_are_accepted() -> None:
    java = {
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": "u:p",
        "ssl.truststore.location": "ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": "own.pem",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
    }
    parsed = parse_registry_settings("https://x", java)
    assert (parsed.ca_file, parsed.certificate_file, parsed.key_password, parsed.identification) == (
        "ca.pem", "own.pem", "secret", "",
    )  # fmt: skip
    assert "secret" not in repr(parsed)


def test_settings_are_completed_with_those_of_another_registry() -> None:
    brokers = RegistrySettings("https://node1", "ada:p", ca_file="ca.pem")
    assert RegistrySettings("https://node1").with_defaults_of(brokers) == brokers
    with_token = RegistrySettings("https://node1", token="t", key_file="k").with_defaults_of(brokers)
    assert with_token == RegistrySettings("https://node1", token="t", ca_file="ca.pem", key_file="k")


def test_missing_ca_file_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"schema registry https://x: invalid TLS settings: .*No such file"):
        RegistryClient(RegistrySettings("https://x", ca_file="/missing"))


def test_many_unknown_schemas_are_confirmed_after_one_delay(
    registry: HttpRegistry, connect: Connect, clock: Clock
) -> None:
    known = registry.add("orders", '"string"')
    client = connect()
    client.prefetch_schemas(range(known, known + 50))
    assert len(clock.slept) == 1
    assert len(registry.requests) == 50 + 49
    assert client.fetch_schema(known).text == '"string"'
    for key in range(known + 1, known + 50):
        with pytest.raises(SchemaUnknownError, match=f"has no schema with id {key}"):
            client.fetch_schema(key)
    assert len(registry.requests) == 50 + 49


def test_schema_that_is_registered_during_confirmation_is_found(
    registry: HttpRegistry, connect: Connect, clock: Clock
) -> None:
    ids = [registry.add("orders", f'"{name}"') for name in ("string", "long")]
    registry.hidden_requests = {f"/schemas/ids/{id}": 1 for id in ids}
    client = connect()
    client.prefetch_schemas(ids)
    assert [client.fetch_schema(id).text for id in ids] == ['"string"', '"long"']


def test_unsupported_schema_is_not_requested_for_each_record(
    registry: HttpRegistry, connect: Connect, clock: Clock
) -> None:
    missing = [{"name": "Item", "subject": "items", "version": 1}]
    id = registry.add("orders", '"Item"', references=missing)
    client = connect()
    for _ in range(20):
        with pytest.raises(UnsupportedSchemaError, match="refers to Item, which is missing"):
            client.fetch_schema(id)
    assert len(clock.slept) == 1
    clock.now += UNKNOWN_SECONDS
    with pytest.raises(UnsupportedSchemaError, match="refers to Item, which is missing"):
        client.fetch_schema(id)
    assert len(clock.slept) == 2


def test_long_chain_of_references_is_unsupported(registry: HttpRegistry, connect: Connect) -> None:
    references: list[dict[str, object]] = []
    for number in range(REFERENCES_MAX):
        id = registry.add(f"item-{number}", '"int"', references=references)
        references = [{"name": f"Item{number}", "subject": f"item-{number}", "version": 1}]
    client = connect()
    with pytest.raises(UnsupportedSchemaError, match="refer to each other more than 200 levels deep"):
        client.fetch_schema(id)
    assert client.fetch_schema(REFERENCE_DEPTH_MAX).references
