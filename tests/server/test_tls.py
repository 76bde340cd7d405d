"""TLS connections: principals, rejected clients, and certificate reload."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from chronik.limits import TLS_SUBJECT_CHARACTERS_MAX
from chronik.request_reply import ConnectedClient, Reply
from chronik.server.connection import ListenerLimits
from chronik.tls.settings import CLIENT_AUTH_REQUESTED, CLIENT_AUTH_REQUIRED, TLS_1_2, TLS_1_3
from tests.server.test_connections import Echo, framed, until
from tests.server.tls_server import (
    connect_and_exchange,
    connect_tls,
    exchange,
    in_thread,
    is_rejected,
    read_exactly,
    run,
    tls_server,
)
from tests.tls.certificates import (
    certificate_authority,
    client_context,
    issue_certificate,
    replace_file,
    server_settings,
)

ALICE = "CN=alice,OU=x,O=y"


class PrincipalEcho(Echo):
    """A handler that responds with the client's principal."""

    def __call__(self, frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
        return Reply.from_frame([framed(str(peer.principal).encode())])


def test_client_certificate_determines_principal_else_anonymous(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tls_server(PrincipalEcho(), server_settings(tmp_path, client_auth=CLIENT_AUTH_REQUESTED)) as server:
            with_certificate = client_context(tmp_path, ALICE)
            assert (
                await in_thread(lambda: connect_and_exchange(server.address, with_certificate))
                == b"User:CN=alice,OU=x,O=y"
            )
            assert (
                await in_thread(lambda: connect_and_exchange(server.address, client_context(tmp_path)))
                == b"User:ANONYMOUS"
            )

    run(scenario)


def test_principal_rules_map_subject_and_reject_unmatched_subjects(tmp_path: Path) -> None:
    async def scenario() -> None:
        rules = "RULE:^CN=(.*?),OU=x.*$/$1/U"
        async with tls_server(
            PrincipalEcho(), server_settings(tmp_path, client_auth=CLIENT_AUTH_REQUIRED), rules=rules
        ) as server:
            assert (
                await in_thread(lambda: connect_and_exchange(server.address, client_context(tmp_path, ALICE)))
                == b"User:ALICE"
            )
            assert await in_thread(lambda: is_rejected(server.address, client_context(tmp_path, "CN=bob")))

    run(scenario)


def test_sasl_listener_ignores_certificate_subject(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tls_server(
            PrincipalEcho(), server_settings(tmp_path, client_auth=CLIENT_AUTH_REQUIRED), rules=None
        ) as server:
            assert (
                await in_thread(lambda: connect_and_exchange(server.address, client_context(tmp_path, ALICE)))
                == b"User:ANONYMOUS"
            )

    run(scenario)


@pytest.mark.parametrize(("more", "is_served"), [(0, True), (1, False)])
def test_certificate_subject_above_length_limit_is_rejected(tmp_path: Path, more: int, is_served: bool) -> None:
    names = ["OU=" + 60 * "u"] * 14
    prefix = ",".join(names) + ",CN="
    assert TLS_SUBJECT_CHARACTERS_MAX == 1024
    subject = ",".join(names) + ",CN=" + "c" * 60 + ",O=" + "o" * (1024 - len(prefix) - 60 - 3 + more)

    async def scenario() -> None:
        async with tls_server(PrincipalEcho(), server_settings(tmp_path, client_auth=CLIENT_AUTH_REQUIRED)) as server:
            context = client_context(tmp_path, subject)
            if is_served:
                assert len(await in_thread(lambda: connect_and_exchange(server.address, context))) == 1024 + len(
                    b"User:"
                )
            else:
                assert await in_thread(lambda: is_rejected(server.address, context))

    run(scenario)


def test_missing_or_untrusted_client_certificate_is_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with tls_server(PrincipalEcho(), server_settings(tmp_path, client_auth=CLIENT_AUTH_REQUIRED)) as server:
            assert await in_thread(lambda: is_rejected(server.address, client_context(tmp_path)))
            assert await in_thread(lambda: is_rejected(server.address, client_context(tmp_path, ALICE, by="other CA")))
            assert await in_thread(lambda: connect_and_exchange(server.address, client_context(tmp_path, ALICE)))

    with caplog.at_level(logging.INFO, "chronik"):
        run(scenario)
    messages = [record.getMessage() for record in caplog.records if "rejected" in record.getMessage()]
    assert len(messages) == 2
    assert "the peer presented no certificate" in messages[0]
    assert "the peer's certificate is not trusted: unable to get local issuer certificate" in messages[1]
    assert not [record for record in caplog.records if record.exc_info or record.levelno > logging.INFO]


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_only_enabled_tls_versions_are_accepted(tmp_path: Path, version: str) -> None:
    versions = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
    (other,) = versions.keys() - {version}

    async def scenario() -> None:
        async with tls_server(PrincipalEcho(), server_settings(tmp_path, versions=(version,))) as server:
            context = client_context(tmp_path)
            with await in_thread(lambda: connect_tls(server.address, context)) as client:
                assert client.version() == version
                assert await in_thread(lambda: exchange(client, b"hello"))
            context.minimum_version = context.maximum_version = versions[other]
            assert await in_thread(lambda: is_rejected(server.address, context))

    run(scenario)


def test_only_configured_cipher_suites_are_accepted(tmp_path: Path) -> None:
    async def scenario() -> None:
        named = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        async with tls_server(
            PrincipalEcho(), server_settings(tmp_path, versions=(TLS_1_2,), ciphers=(named,))
        ) as server:
            context = client_context(tmp_path)
            with await in_thread(lambda: connect_tls(server.address, context)) as client:
                assert client.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)
            context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
            assert await in_thread(lambda: is_rejected(server.address, context))

    run(scenario)


@pytest.mark.parametrize("sent", [framed(bytes(100)), b"GET / HTTP/1.1\r\n\r\n", bytes(range(256))])
def test_client_without_tls_is_rejected_immediately(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with tls_server(PrincipalEcho(), server_settings(tmp_path)) as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(sent)
            await reader.read()
            writer.close()
            await until(lambda: server.securing.handshake_count == 0)

    with caplog.at_level(logging.INFO, "chronik"):
        run(scenario)
    (messages,) = [record.getMessage() for record in caplog.records if "rejected" in record.getMessage()]
    assert "the peer does not use TLS" in messages or "TLS failed" in messages
    assert not [record for record in caplog.records if record.exc_info]


def test_reloaded_certificate_applies_to_new_connections_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tls_server(Echo(), server_settings(tmp_path)) as server:
            context = client_context(tmp_path)
            before = await in_thread(lambda: connect_tls(server.address, context))
            replace_file(
                tmp_path / "node.pem", certificate_authority().issue("CN=renewed", ("localhost",)).keystore_pem
            )
            assert server.context.reload_if_changed()
            assert not server.context.reload_if_changed()
            after = await in_thread(lambda: connect_tls(server.address, context))
            with before, after:
                assert "node" in str(before.getpeercert())
                assert "renewed" in str(after.getpeercert())
                assert await in_thread(lambda: exchange(before, b"both")) == b"both"
                assert await in_thread(lambda: exchange(after, b"both")) == b"both"

    run(scenario)


def test_removed_ca_is_rejected_even_with_tls_session_resumption(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tls_server(PrincipalEcho(), server_settings(tmp_path, client_auth=CLIENT_AUTH_REQUIRED)) as server:
            context = client_context(tmp_path, ALICE)

            def reconnect(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
                raw = socket.create_connection(server.address)
                with context.wrap_socket(raw, server_hostname="localhost", session=session) as client:
                    assert exchange(client, b"hello") == b"User:CN=alice,OU=x,O=y"
                    assert client.session_reused == (session is not None)
                    return client.session

            session = await in_thread(lambda: reconnect(None))
            session = await in_thread(lambda: reconnect(session))
            replace_file(tmp_path / "trusted.pem", certificate_authority("another").certificate_pem)
            assert server.context.reload_if_changed()
            with pytest.raises((ssl.SSLError, OSError)):
                await in_thread(lambda: reconnect(session))
            assert await in_thread(lambda: is_rejected(server.address, context))
            assert await in_thread(
                lambda: connect_and_exchange(server.address, client_context(tmp_path, "CN=b", by="another"))
            )

    run(scenario)


@pytest.mark.parametrize("broken", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA", issue_certificate("CN=a").key, None])
def test_failed_certificate_reload_keeps_current_certificate(
    tmp_path: Path, broken: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with tls_server(Echo(), server_settings(tmp_path)) as server:
            if broken is None:
                replace_file(
                    tmp_path / "node.pem", issue_certificate("CN=a").key + issue_certificate("CN=b").certificate
                )
            else:
                replace_file(tmp_path / "node.pem", broken)
            assert not server.context.reload_if_changed()
            assert not server.context.reload_if_changed()
            assert await in_thread(lambda: connect_and_exchange(server.address, client_context(tmp_path))) == b"hello"
            replace_file(tmp_path / "node.pem", issue_certificate("CN=mended").keystore_pem)
            assert server.context.reload_if_changed()

    with caplog.at_level(logging.INFO, "chronik"):
        run(scenario)
    (messages,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert messages.startswith("listener SSL: certificate reload failed: broker: ssl.keystore.location = ")


def test_large_response_is_encrypted_over_many_iterations(tmp_path: Path) -> None:
    """The response takes many event-loop iterations; benchmarks measure how long each one is."""

    async def scenario() -> None:
        echo = Echo()
        async with tls_server(echo, server_settings(tmp_path)) as server:
            context = client_context(tmp_path)
            with await in_thread(lambda: connect_tls(server.address, context)) as client:
                echo.answer_bytes = 64 << 20
                iterations = 0
                reading = asyncio.ensure_future(in_thread(lambda: exchange(client, b"large")))
                while not reading.done():
                    await asyncio.sleep(0)
                    iterations += bool(echo.handled)
                assert len(await reading) == len(b"large") + echo.answer_bytes
                assert iterations > 20
                assert server.listener.unsent_bytes.unsent_bytes == 0

    run(scenario)


def test_shutdown_waits_until_all_responses_are_sent(tmp_path: Path) -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.answer_bytes = 16 << 20
        async with tls_server(echo, server_settings(tmp_path)) as server:
            context = client_context(tmp_path)

            def read_late() -> int:
                with connect_tls(server.address, context) as client:
                    client.sendall(framed(b"large"))
                    time.sleep(0.2)  # the response waits for its reader then
                    size = len(b"large") + echo.answer_bytes
                    assert len(read_exactly(client, 4 + size)) == 4 + size
                    return len(client.recv(1))

            reading = asyncio.ensure_future(in_thread(read_late))
            await until(lambda: echo.handled == [b"large"])
            await server.listener.stop()
            assert await reading == 0, "only the end of the stream follows"

    run(scenario)


def test_connection_closed_within_a_tls_record_is_released(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tls_server(Echo(), server_settings(tmp_path)) as server:
            context = client_context(tmp_path)
            client = await in_thread(lambda: connect_tls(server.address, context))
            await until(lambda: server.listener.connection_count == 1)
            raw = socket.socket(fileno=client.detach())
            raw.sendall(b"\x17\x03\x03\x40\x00half")
            raw.shutdown(socket.SHUT_WR)
            await until(lambda: server.listener.connection_count == 0)
            raw.close()

    run(scenario)


def test_corrupted_tls_record_closes_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with tls_server(echo, server_settings(tmp_path)) as server:
            context = client_context(tmp_path)
            client = await in_thread(lambda: connect_tls(server.address, context))
            await until(lambda: server.listener.connection_count == 1)
            raw = socket.socket(fileno=client.detach())
            raw.sendall(b"\x17\x03\x03\x00\x30" + bytes(48))
            await until(lambda: server.listener.connection_count == 0)
            assert echo.handled == []
            raw.close()

    run(scenario)


def test_connection_limit_includes_pending_handshakes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tls_server(Echo(), server_settings(tmp_path), ListenerLimits(connections=2)) as server:
            context = client_context(tmp_path)
            first = await in_thread(lambda: connect_tls(server.address, context))
            silent = socket.create_connection(server.address)
            await until(lambda: server.securing.handshake_count == 1)
            assert await in_thread(lambda: is_rejected(server.address, context))
            silent.close()
            await until(lambda: server.securing.handshake_count == 0)
            assert await in_thread(lambda: connect_and_exchange(server.address, context)) == b"hello"
            first.close()

    run(scenario)
