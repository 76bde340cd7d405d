"""A node's listeners by Kafka's own configs: which there are, what clients are told, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chronik.config import load_config
from chronik.errors import ConfigError
from chronik.listeners import Address, ListenerConfig

TWO = "INTERNAL://127.0.0.1:9092,EXTERNAL://0.0.0.0:9093"
MAP = "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT"


def listeners(**broker: str) -> tuple[ListenerConfig, ...]:
    """Underscores for dots."""
    return load_config(None, {}, broker={name.replace("_", "."): value for name, value in broker.items()}).listeners


def test_the_short_form_is_one_listener_called_plaintext() -> None:
    here, there = Address("127.0.0.1", 9), Address("example.org", 8)
    assert load_config(None, {}, kafka=str(here)).listeners == (ListenerConfig("PLAINTEXT", here, here),)
    both = load_config(None, {}, kafka=str(here), advertised=str(there))
    assert both.listeners == (ListenerConfig("PLAINTEXT", here, there),)


def test_each_listener_has_its_own_address_for_clients() -> None:
    advertised = "internal://node1:9092 , External://example.org:443"
    found = listeners(listeners=TWO, advertised_listeners=advertised, listener_security_protocol_map=MAP)
    assert found == (
        ListenerConfig("INTERNAL", Address("127.0.0.1", 9092), Address("node1", 9092)),
        ListenerConfig("EXTERNAL", Address("0.0.0.0", 9093), Address("example.org", 443)),
    )


def test_a_file_names_them_by_kafkas_names(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('[broker]\n"listeners" = "PLAINTEXT://:0"\n"advertised.listeners" = "PLAINTEXT://[::1]:0"\n')
    config = load_config(path, {})
    (only,) = config.listeners
    assert only == ListenerConfig("PLAINTEXT", Address("0.0.0.0", 0), Address("::1", 0))
    assert config.kafka == only.address
    assert only.told(Address("0.0.0.0", 4711)) == Address("::1", 4711)


def test_one_that_is_not_advertised_is_told_to_nobody() -> None:
    found = listeners(listeners=TWO, advertised_listeners="INTERNAL://a:1", listener_security_protocol_map=MAP)
    assert [(listener.name, listener.told(listener.address)) for listener in found] == [
        ("INTERNAL", Address("a", 1)),
        ("EXTERNAL", None),
    ]


def test_the_one_between_brokers_stands_for_the_node() -> None:
    configs = {
        "listeners": "A://127.0.0.1:1,B://127.0.0.1:2",
        "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
    }
    assert [listener.name for listener in listeners(**configs)] == ["A", "B"]
    assert [listener.name for listener in listeners(**configs, inter_broker_listener_name="b")] == ["B", "A"]
    assert load_config(None, {}, broker={"listeners": "PLAINTEXT://[::1]:7"}).kafka == Address("::1", 7)


MAP_OF_TWO = {"listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT"}


def test_ports_that_the_system_chooses_may_be_several_and_one_port_may_serve_both_families() -> None:
    assert len(listeners(listeners="A://127.0.0.1:0,B://127.0.0.1:0", **MAP_OF_TWO)) == 2
    assert len(listeners(listeners="A://127.0.0.1:9,B://[::1]:9", **MAP_OF_TWO)) == 2


@pytest.mark.parametrize(
    "places",
    [
        *(("localhost", "[::1]"), ("127.0.0.1", "localhost"), ("a", "b")),
        *(("127.0.0.1", "127.0.0.2"), ("[::1]", "[::2]"), ("127.0.0.1", "[::1]", "[::2]")),
    ],
)
def test_a_port_is_not_shared_with_a_name_nor_within_a_family(places: tuple[str, ...]) -> None:
    """A name may be any address, of both families."""
    names = "ABC"[: len(places)]
    with pytest.raises(ConfigError, match=r"a port for each, and [AB] and [BC] have the same"):
        listeners(
            listeners=",".join(f"{name}://{place}:9" for name, place in zip(names, places, strict=True)),
            listener_security_protocol_map=",".join(f"{name}:PLAINTEXT" for name in names),
        )


@pytest.mark.parametrize("host", ["::1", "[::1]", "fe80::1%eth0", "[fe80::1%eth0]", "example.org.", "my_host", "1-a.b"])
def test_hosts_are_what_kafka_takes(host: str) -> None:
    bare = host.strip("[]")
    assert load_config(None, {}, kafka=f"{host}:9092").kafka == Address(bare, 9092)
    assert load_config(None, {}, broker={"listeners": f"PLAINTEXT://{host}:9092"}).kafka == Address(bare, 9092)


@pytest.mark.parametrize(
    "place",
    [
        *("x:1 B://y:2", "http://example.org:1", "PLAINTEXT://x:1", "user@x/y?:1", "a b:1", "a\nb:1", "ä:1"),
        *("a..b:0", ".a:0", "..:0", f"{'h' * 64}:0", f"a.{'h' * 64}.b:0", f"a.{'h' * 64}:0"),
        *("[[::]]:1", "[::1:1", "::1]:1", "[::1]9092", "[::1]", "::1", "::9092", "a:b:1", "[]:1"),
        *("a:٣", "a:²", "a:-1", "a:+1", "a:1_0", "a:", "a:65536", "a:" + "9" * 5000),
    ],
)
def test_a_place_that_is_none_is_refused_in_one_line_in_both_forms(place: str) -> None:
    for given, expected in (
        ({"kafka": place}, "HOST:PORT, such as"),
        ({"advertised": place}, "HOST:PORT, such as"),
        ({"broker": {"listeners": f"PLAINTEXT://{place}"}}, "NAME://HOST:PORT"),
        ({"broker": {"advertised.listeners": f"PLAINTEXT://{place}"}}, "NAME://HOST:PORT"),
    ):
        with pytest.raises(ConfigError) as refused:
            load_config(None, {}, **given)
        assert str(refused.value).count("\n") == 0
        assert f"expected {expected}" in str(refused.value)
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        ({"listeners": "9092"}, "listeners = '9092': expected NAME://HOST:PORT"),
        ({"listeners": ""}, "listeners = '': expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,"}, "expected NAME://HOST:PORT"),
        ({"listeners": "://127.0.0.1:1"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:70000"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:1,plaintext://a:2"}, "every name once, and PLAINTEXT stands there twice"),
        (
            {"listeners": "A://a:1,B://b:1", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"},
            "a port for each, and A and B have the same",
        ),
        (
            {"listeners": "INTERNAL://a:1"},
            'listener.security.protocol.map = "INTERNAL:PLAINTEXT" beside it: no protocol is named for INTERNAL',
        ),
        ({"listeners": "PLAINTEXT://a:1", "listener.security.protocol.map": "A:PLAINTEXT"}, "is named for PLAINTEXT"),
        ({"listeners": "A://a:1", "listener.security.protocol.map": "A:TLS"}, "expected NAME:PROTOCOL"),
        ({"listeners": "A://a:1", "listener.security.protocol.map": "A:SSL,a:SSL"}, "every name once"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "an address for clients to connect to in advertised.listeners"),
        ({"listeners": "PLAINTEXT://:1"}, "an address for clients to connect to in advertised.listeners"),
        (
            {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "PLAINTEXT://[::]:1"},
            "advertised.listeners = 'PLAINTEXT://[::]:1': expected an address for clients",
        ),
        (
            {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "PLAINTEXT://:1"},
            "advertised.listeners = 'PLAINTEXT://:1': expected NAME://HOST:PORT",
        ),
        (
            {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "OTHER://a:1"},
            "expected only PLAINTEXT, which are in listeners",
        ),
        (
            {"listeners": "PLAINTEXT://a:1", "inter.broker.listener.name": "OTHER"},
            "inter.broker.listener.name = 'OTHER': expected one of PLAINTEXT",
        ),
        ({"listeners": "PLAIN\nTEXT://a:1"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://[::0]:1"}, "an address for clients to connect to in advertised.listeners"),
        (
            {"listeners": "PLAINTEXT://a:1", "security.inter.broker.protocol": "SSL"},
            "security.inter.broker.protocol = 'SSL': expected one of PLAINTEXT",
        ),
    ],
)
def test_what_kafka_refuses_is_refused_in_one_line(broker: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, broker=broker)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        ({"listener.security.protocol.map": "garbage"}, "expected NAME:PROTOCOL"),
        (
            {"listener.security.protocol.map": "OTHER:PLAINTEXT"},
            "'OTHER:PLAINTEXT': expected PLAINTEXT:PLAINTEXT in it: no protocol is named for PLAINTEXT",
        ),
        ({"inter.broker.listener.name": "NOPE"}, "inter.broker.listener.name = 'NOPE': expected one of PLAINTEXT"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "expected one of PLAINTEXT"),
    ],
)
@pytest.mark.parametrize("short", [{}, {"kafka": "127.0.0.1:1"}, {"kafka": "0.0.0.0:1", "advertised": "a:1"}])
def test_what_else_kafkas_configs_say_holds_for_the_short_form_too(
    broker: dict[str, str], expected: str, short: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, broker=broker, **short)
    assert expected in str(refused.value)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_each_has_the_protocol_of_its_name_or_of_the_map(protocol: str) -> None:
    """Also in the short form: nobody who asks for TLS is served without it."""
    (only,) = listeners(listeners=f"{protocol}://a:1")
    assert only == ListenerConfig(protocol, Address("a", 1), Address("a", 1), protocol)
    mapped = {"listener.security.protocol.map": f"PLAINTEXT:{protocol}"}
    (short,) = load_config(None, {}, kafka="a:1", broker=mapped).listeners
    assert short == ListenerConfig("PLAINTEXT", Address("a", 1), Address("a", 1), protocol)


def test_the_protocol_between_brokers_names_the_listener_that_stands_for_the_node() -> None:
    two = "PLAINTEXT://a:1,SSL://a:2"
    assert [each.name for each in listeners(listeners=two)] == ["PLAINTEXT", "SSL"]
    assert listeners(listeners=two, security_inter_broker_protocol="SSL")[0].name == "SSL"


def test_what_kafkas_configs_may_say_beside_the_short_form_changes_nothing_of_it() -> None:
    broker = {
        "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": " plaintext ",
        "security.inter.broker.protocol": "PLAINTEXT",
    }
    shorts: tuple[dict[str, Any], ...] = (
        {},
        {"kafka": "[::1]:7"},
        {"kafka": "0.0.0.0:0", "advertised": "example.org:0"},
    )
    for short in shorts:
        assert load_config(None, {}, broker=broker, **short).listeners == load_config(None, {}, **short).listeners
    with pytest.raises(ConfigError, match=r"^kafka = .0\.0\.0\.0:1. is no address .*--advertised HOST:PORT"):
        load_config(None, {}, broker=broker, kafka="0.0.0.0:1")


def test_a_port_for_controllers_is_not_opened_to_clients() -> None:
    """As the server.properties have it that come with Kafka."""
    broker = {
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "OTHER, Controller",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    }
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, broker=broker)
    assert (
        "expected no CONTROLLER, which controller.listener.names names: leave it out; nodes speak to each other on "
        "their raft ports"
    ) in str(refused.value)
    left = load_config(None, {}, broker=broker | {"listeners": "PLAINTEXT://127.0.0.1:9092"})
    assert [listener.name for listener in left.listeners] == ["PLAINTEXT"]


def test_the_short_form_beside_the_long_one_is_refused() -> None:
    named: dict[str, Any] = {"broker": {"listeners": "PLAINTEXT://a:1"}}
    with pytest.raises(ConfigError, match=r"kafka = 'a:1': expected no listeners in \[broker\] beside it"):
        load_config(None, {}, kafka="a:1", **named)
    with pytest.raises(ConfigError, match=r"advertised = 'a:1': expected no listeners in"):
        load_config(None, {"CHRONIK_ADVERTISED": "a:1"}, **named)
    with pytest.raises(ConfigError, match=r"advertised = 'a:1': expected no advertised\.listeners in"):
        load_config(None, {}, advertised="a:1", broker={"advertised.listeners": "PLAINTEXT://a:1"})


def test_kafkas_config_may_tell_clients_where_the_short_form_listens() -> None:
    (only,) = load_config(
        None, {}, kafka="0.0.0.0:9092", broker={"advertised.listeners": "PLAINTEXT://example.org:1"}
    ).listeners
    assert only == ListenerConfig("PLAINTEXT", Address("0.0.0.0", 9092), Address("example.org", 1))


def test_nobody_is_told_to_connect_everywhere() -> None:
    with pytest.raises(ConfigError, match=r"advertised = '0\.0\.0\.0:1' is no address that clients can"):
        load_config(None, {}, advertised="0.0.0.0:1")
