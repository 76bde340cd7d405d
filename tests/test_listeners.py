"""Listener configs: listeners, advertised addresses and security protocols, and the rejection of invalid configs."""

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
    """Return the listeners for broker configs, whose dots are given as underscores."""
    return load_config(None, {}, broker={name.replace("_", "."): value for name, value in broker.items()}).listeners


def test_short_form_defines_one_plaintext_listener() -> None:
    here, there = Address("127.0.0.1", 9), Address("example.org", 8)
    assert load_config(None, {}, kafka=str(here)).listeners == (ListenerConfig("PLAINTEXT", here, here),)
    both = load_config(None, {}, kafka=str(here), advertised=str(there))
    assert both.listeners == (ListenerConfig("PLAINTEXT", here, there),)


def test_each_listener_has_its_own_advertised_address() -> None:
    advertised = "internal://node1:9092 , External://example.org:443"
    found = listeners(listeners=TWO, advertised_listeners=advertised, listener_security_protocol_map=MAP)
    assert found == (
        ListenerConfig("INTERNAL", Address("127.0.0.1", 9092), Address("node1", 9092)),
        ListenerConfig("EXTERNAL", Address("0.0.0.0", 9093), Address("example.org", 443)),
    )


def test_config_file_uses_kafka_listener_configs(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('[broker]\n"listeners" = "PLAINTEXT://:0"\n"advertised.listeners" = "PLAINTEXT://[::1]:0"\n')
    config = load_config(path, {})
    (only,) = config.listeners
    assert only == ListenerConfig("PLAINTEXT", Address("0.0.0.0", 0), Address("::1", 0))
    assert config.kafka == only.address
    assert only.advertised_address(Address("0.0.0.0", 4711)) == Address("::1", 4711)


def test_unadvertised_listener_has_no_advertised_address() -> None:
    found = listeners(listeners=TWO, advertised_listeners="INTERNAL://a:1", listener_security_protocol_map=MAP)
    assert [(listener.name, listener.advertised_address(listener.address)) for listener in found] == [
        ("INTERNAL", Address("a", 1)),
        ("EXTERNAL", None),
    ]


def test_inter_broker_listener_is_the_main_listener() -> None:
    configs = {
        "listeners": "A://127.0.0.1:1,B://127.0.0.1:2",
        "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
    }
    assert [listener.name for listener in listeners(**configs)] == ["A", "B"]
    assert [listener.name for listener in listeners(**configs, inter_broker_listener_name="b")] == ["B", "A"]
    assert load_config(None, {}, broker={"listeners": "PLAINTEXT://[::1]:7"}).kafka == Address("::1", 7)


MAP_OF_TWO = {"listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT"}


def test_port_zero_may_repeat_and_ipv4_and_ipv6_may_share_a_port() -> None:
    assert len(listeners(listeners="A://127.0.0.1:0,B://127.0.0.1:0", **MAP_OF_TWO)) == 2
    assert len(listeners(listeners="A://127.0.0.1:9,B://[::1]:9", **MAP_OF_TWO)) == 2


@pytest.mark.parametrize(
    "hosts",
    [
        *(("localhost", "[::1]"), ("127.0.0.1", "localhost"), ("a", "b")),
        *(("127.0.0.1", "127.0.0.2"), ("[::1]", "[::2]"), ("127.0.0.1", "[::1]", "[::2]")),
    ],
)
def test_shared_port_is_rejected_for_host_names_and_same_address_family(hosts: tuple[str, ...]) -> None:
    """A host name may resolve to any address of both families."""
    names = "ABC"[: len(hosts)]
    with pytest.raises(ConfigError, match=r"one port per listener, but [AB] and [BC] share one"):
        listeners(
            listeners=",".join(f"{name}://{host_port}:9" for name, host_port in zip(names, hosts, strict=True)),
            listener_security_protocol_map=",".join(f"{name}:PLAINTEXT" for name in names),
        )


@pytest.mark.parametrize("host", ["::1", "[::1]", "fe80::1%eth0", "[fe80::1%eth0]", "example.org.", "my_host", "1-a.b"])
def test_host_syntax_matches_kafka(host: str) -> None:
    bare = host.strip("[]")
    assert load_config(None, {}, kafka=f"{host}:9092").kafka == Address(bare, 9092)
    assert load_config(None, {}, broker={"listeners": f"PLAINTEXT://{host}:9092"}).kafka == Address(bare, 9092)


@pytest.mark.parametrize(
    "host_port",
    [
        *("x:1 B://y:2", "http://example.org:1", "PLAINTEXT://x:1", "user@x/y?:1", "a b:1", "a\nb:1", "ä:1"),
        *("a..b:0", ".a:0", "..:0", f"{'h' * 64}:0", f"a.{'h' * 64}.b:0", f"a.{'h' * 64}:0"),
        *("[[::]]:1", "[::1:1", "::1]:1", "[::1]9092", "[::1]", "::1", "::9092", "a:b:1", "[]:1"),
        *("a:٣", "a:²", "a:-1", "a:+1", "a:1_0", "a:", "a:65536", "a:" + "9" * 5000),
    ],
)
def test_invalid_listener_address_is_rejected_in_one_line(host_port: str) -> None:
    for given, expected in (
        ({"kafka": host_port}, "HOST:PORT, such as"),
        ({"advertised": host_port}, "HOST:PORT, such as"),
        ({"broker": {"listeners": f"PLAINTEXT://{host_port}"}}, "NAME://HOST:PORT"),
        ({"broker": {"advertised.listeners": f"PLAINTEXT://{host_port}"}}, "NAME://HOST:PORT"),
    ):
        with pytest.raises(ConfigError) as raised:
            load_config(None, {}, **given)
        assert str(raised.value).count("\n") == 0
        assert f"expected {expected}" in str(raised.value)
        assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        ({"listeners": "9092"}, "listeners = '9092': expected NAME://HOST:PORT"),
        ({"listeners": ""}, "listeners = '': expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,"}, "expected NAME://HOST:PORT"),
        ({"listeners": "://127.0.0.1:1"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:70000"}, "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:1,plaintext://a:2"}, "unique names, but PLAINTEXT occurs twice"),
        (
            {"listeners": "A://a:1,B://b:1", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"},
            "one port per listener, but A and B share one",
        ),
        (
            {"listeners": "INTERNAL://a:1"},
            'listener.security.protocol.map = "INTERNAL:PLAINTEXT": listener INTERNAL has no security protocol',
        ),
        (
            {"listeners": "PLAINTEXT://a:1", "listener.security.protocol.map": "A:PLAINTEXT"},
            "listener PLAINTEXT has no",
        ),
        ({"listeners": "A://a:1", "listener.security.protocol.map": "A:TLS"}, "expected NAME:PROTOCOL"),
        ({"listeners": "A://a:1", "listener.security.protocol.map": "A:SSL,a:SSL"}, "unique names"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "an address that clients can connect to in advertised.listeners"),
        ({"listeners": "PLAINTEXT://:1"}, "an address that clients can connect to in advertised.listeners"),
        (
            {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "PLAINTEXT://[::]:1"},
            "advertised.listeners = 'PLAINTEXT://[::]:1': expected an address that clients can connect to",
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
        ({"listeners": "PLAINTEXT://[::0]:1"}, "an address that clients can connect to in advertised.listeners"),
        (
            {"listeners": "PLAINTEXT://a:1", "security.inter.broker.protocol": "SSL"},
            "security.inter.broker.protocol = 'SSL': expected one of PLAINTEXT",
        ),
    ],
)
def test_listener_configs_rejected_by_kafka_are_rejected_in_one_line(broker: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(None, {}, broker=broker)
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        ({"listener.security.protocol.map": "garbage"}, "expected NAME:PROTOCOL"),
        (
            {"listener.security.protocol.map": "OTHER:PLAINTEXT"},
            "'OTHER:PLAINTEXT': expected PLAINTEXT:PLAINTEXT in it: listener PLAINTEXT has no security protocol",
        ),
        ({"inter.broker.listener.name": "NOPE"}, "inter.broker.listener.name = 'NOPE': expected one of PLAINTEXT"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "expected one of PLAINTEXT"),
    ],
)
@pytest.mark.parametrize("short", [{}, {"kafka": "127.0.0.1:1"}, {"kafka": "0.0.0.0:1", "advertised": "a:1"}])
def test_kafka_listener_configs_apply_to_short_form(
    broker: dict[str, str], expected: str, short: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(None, {}, broker=broker, **short)
    assert expected in str(raised.value)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_listener_protocol_comes_from_its_name_or_the_map(protocol: str) -> None:
    """The map applies to the short form, too: a listener configured for TLS never serves without it."""
    (only,) = listeners(listeners=f"{protocol}://a:1")
    assert only == ListenerConfig(protocol, Address("a", 1), Address("a", 1), protocol)
    mapped = {"listener.security.protocol.map": f"PLAINTEXT:{protocol}"}
    (short,) = load_config(None, {}, kafka="a:1", broker=mapped).listeners
    assert short == ListenerConfig("PLAINTEXT", Address("a", 1), Address("a", 1), protocol)


def test_inter_broker_protocol_selects_the_main_listener() -> None:
    two = "PLAINTEXT://a:1,SSL://a:2"
    assert [each.name for each in listeners(listeners=two)] == ["PLAINTEXT", "SSL"]
    assert listeners(listeners=two, security_inter_broker_protocol="SSL")[0].name == "SSL"


def test_consistent_kafka_configs_do_not_change_short_form() -> None:
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
    with pytest.raises(ConfigError, match=r"^kafka = .0\.0\.0\.0:1.: clients cannot connect .*--advertised HOST:PORT"):
        load_config(None, {}, broker=broker, kafka="0.0.0.0:1")


def test_controller_listener_is_rejected() -> None:
    """The configs are those of the server.properties that Kafka ships."""
    broker = {
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "OTHER, Controller",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    }
    with pytest.raises(ConfigError) as raised:
        load_config(None, {}, broker=broker)
    assert (
        "expected no CONTROLLER, which is in controller.listener.names: remove it; nodes connect to each other on "
        "their raft ports"
    ) in str(raised.value)
    accepted = load_config(None, {}, broker=broker | {"listeners": "PLAINTEXT://127.0.0.1:9092"})
    assert [listener.name for listener in accepted.listeners] == ["PLAINTEXT"]


def test_short_form_combined_with_kafka_listeners_is_rejected() -> None:
    named: dict[str, Any] = {"broker": {"listeners": "PLAINTEXT://a:1"}}
    with pytest.raises(ConfigError, match=r"kafka = 'a:1': cannot be combined with listeners in \[broker\]"):
        load_config(None, {}, kafka="a:1", **named)
    with pytest.raises(ConfigError, match=r"advertised = 'a:1': cannot be combined with listeners in"):
        load_config(None, {"CHRONIK_ADVERTISED": "a:1"}, **named)
    with pytest.raises(ConfigError, match=r"advertised = 'a:1': cannot be combined with advertised\.listeners in"):
        load_config(None, {}, advertised="a:1", broker={"advertised.listeners": "PLAINTEXT://a:1"})


def test_short_form_can_be_combined_with_advertised_listeners() -> None:
    (only,) = load_config(
        None, {}, kafka="0.0.0.0:9092", broker={"advertised.listeners": "PLAINTEXT://example.org:1"}
    ).listeners
    assert only == ListenerConfig("PLAINTEXT", Address("0.0.0.0", 9092), Address("example.org", 1))


def test_wildcard_advertised_address_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"advertised = '0\.0\.0\.0:1': clients cannot connect to this address"):
        load_config(None, {}, advertised="0.0.0.0:1")
