"""Connections with TLS: who they are, what is spoken and refused, and how certificates change while clients come."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from chronik.exchange import Peer, Reply
from chronik.limits import TLS_SUBJECT_CHARACTERS_MAX
from chronik.server.listener_limits import ListenerLimits
from chronik.tls.settings import REQUESTED, REQUIRED, TLS_1_2, TLS_1_3
from tests.server.secured import asked, connected, in_thread, is_refused, received, run, secured, served
from tests.server.test_connections import Echo, framed, until
from tests.tls.certificates import authority, client_context, issued, settings, written

ALICE = "CN=alice,OU=x,O=y"


class Who(Echo):
    """Answers with who has asked."""

    def __call__(self, frame: bytearray, peer: Peer) -> Reply[Any]:
        return Reply.of_frame([framed(str(peer.principal).encode())])


def test_a_certificate_names_the_principal_and_without_one_it_is_anonymous(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(Who(), settings(tmp_path, client_auth=REQUESTED)) as server:
            with_certificate = client_context(tmp_path, ALICE)
            assert await in_thread(lambda: served(server.address, with_certificate)) == b"User:CN=alice,OU=x,O=y"
            assert await in_thread(lambda: served(server.address, client_context(tmp_path))) == b"User:ANONYMOUS"

    run(scenario)


def test_rules_make_a_name_of_the_subject_and_who_has_none_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        rules = "RULE:^CN=(.*?),OU=x.*$/$1/U"
        async with secured(Who(), settings(tmp_path, client_auth=REQUIRED), rules=rules) as server:
            assert await in_thread(lambda: served(server.address, client_context(tmp_path, ALICE))) == b"User:ALICE"
            assert await in_thread(lambda: is_refused(server.address, client_context(tmp_path, "CN=bob")))

    run(scenario)


def test_where_clients_have_passwords_a_certificate_names_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(Who(), settings(tmp_path, client_auth=REQUIRED), rules=None) as server:
            assert await in_thread(lambda: served(server.address, client_context(tmp_path, ALICE))) == b"User:ANONYMOUS"

    run(scenario)


@pytest.mark.parametrize(("more", "is_served"), [(0, True), (1, False)])
def test_a_subject_of_the_largest_length_is_taken_and_one_character_more_is_not(
    tmp_path: Path, more: int, is_served: bool
) -> None:
    names = ["OU=" + 60 * "u"] * 14
    begun = ",".join(names) + ",CN="
    assert TLS_SUBJECT_CHARACTERS_MAX == 1024
    subject = ",".join(names) + ",CN=" + "c" * 60 + ",O=" + "o" * (1024 - len(begun) - 60 - 3 + more)

    async def scenario() -> None:
        async with secured(Who(), settings(tmp_path, client_auth=REQUIRED)) as server:
            context = client_context(tmp_path, subject)
            if is_served:
                assert len(await in_thread(lambda: served(server.address, context))) == 1024 + len(b"User:")
            else:
                assert await in_thread(lambda: is_refused(server.address, context))

    run(scenario)


def test_who_must_show_a_certificate_and_has_none_or_a_strangers_is_refused_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with secured(Who(), settings(tmp_path, client_auth=REQUIRED)) as server:
            assert await in_thread(lambda: is_refused(server.address, client_context(tmp_path)))
            assert await in_thread(lambda: is_refused(server.address, client_context(tmp_path, ALICE, by="stranger")))
            assert await in_thread(lambda: served(server.address, client_context(tmp_path, ALICE)))

    with caplog.at_level(logging.INFO, "chronik"):
        run(scenario)
    told = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(told) == 2
    assert "it has shown no certificate" in told[0]
    assert "its certificate is not trusted: unable to get local issuer certificate" in told[1]
    assert not [record for record in caplog.records if record.exc_info or record.levelno > logging.INFO]


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_only_the_versions_that_are_allowed_are_spoken(tmp_path: Path, version: str) -> None:
    versions = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
    (other,) = versions.keys() - {version}

    async def scenario() -> None:
        async with secured(Who(), settings(tmp_path, versions=(version,))) as server:
            context = client_context(tmp_path)
            with await in_thread(lambda: connected(server.address, context)) as client:
                assert client.version() == version
                assert await in_thread(lambda: asked(client, b"hello"))
            context.minimum_version = context.maximum_version = versions[other]
            assert await in_thread(lambda: is_refused(server.address, context))

    run(scenario)


def test_ciphers_are_those_that_are_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        named = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        async with secured(Who(), settings(tmp_path, versions=(TLS_1_2,), ciphers=(named,))) as server:
            context = client_context(tmp_path)
            with await in_thread(lambda: connected(server.address, context)) as client:
                assert client.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)
            context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
            assert await in_thread(lambda: is_refused(server.address, context))

    run(scenario)


@pytest.mark.parametrize("sent", [framed(bytes(100)), b"GET / HTTP/1.1\r\n\r\n", bytes(range(256))])
def test_who_does_not_speak_tls_is_told_off_at_once(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with secured(Who(), settings(tmp_path)) as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(sent)
            await reader.read()
            writer.close()
            await until(lambda: server.securing.handshake_count == 0)

    with caplog.at_level(logging.INFO, "chronik"):
        run(scenario)
    (told,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert "it does not speak TLS" in told or "TLS failed" in told
    assert not [record for record in caplog.records if record.exc_info]


def test_a_new_certificate_is_shown_to_the_next_client_and_the_others_stay(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(Echo(), settings(tmp_path)) as server:
            context = client_context(tmp_path)
            before = await in_thread(lambda: connected(server.address, context))
            written(tmp_path / "node.pem", authority().issue("CN=renewed", ("localhost",)).both)
            assert server.context.look()
            assert not server.context.look()
            after = await in_thread(lambda: connected(server.address, context))
            with before, after:
                assert "node" in str(before.getpeercert())
                assert "renewed" in str(after.getpeercert())
                assert await in_thread(lambda: asked(before, b"both")) == b"both"
                assert await in_thread(lambda: asked(after, b"both")) == b"both"

    run(scenario)


def test_a_ca_that_was_taken_away_is_refused_also_from_who_comes_back_with_a_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(Who(), settings(tmp_path, client_auth=REQUIRED)) as server:
            context = client_context(tmp_path, ALICE)

            def come_back(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
                raw = socket.create_connection(server.address)
                with context.wrap_socket(raw, server_hostname="localhost", session=session) as client:
                    assert asked(client, b"hello") == b"User:CN=alice,OU=x,O=y"
                    assert client.session_reused == (session is not None)
                    return client.session

            session = await in_thread(lambda: come_back(None))
            session = await in_thread(lambda: come_back(session))
            written(tmp_path / "trusted.pem", authority("another").certificate)
            assert server.context.look()
            with pytest.raises((ssl.SSLError, OSError)):
                await in_thread(lambda: come_back(session))
            assert await in_thread(lambda: is_refused(server.address, context))
            assert await in_thread(lambda: served(server.address, client_context(tmp_path, "CN=b", by="another")))

    run(scenario)


@pytest.mark.parametrize("broken", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA", issued("CN=a").key, None])
def test_files_that_do_not_fit_leave_the_old_ones_in_force(
    tmp_path: Path, broken: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with secured(Echo(), settings(tmp_path)) as server:
            if broken is None:
                written(tmp_path / "node.pem", issued("CN=a").key + issued("CN=b").certificate)
            else:
                written(tmp_path / "node.pem", broken)
            assert not server.context.look()
            assert not server.context.look()
            assert await in_thread(lambda: served(server.address, client_context(tmp_path))) == b"hello"
            written(tmp_path / "node.pem", issued("CN=mended").both)
            assert server.context.look()

    with caplog.at_level(logging.INFO, "chronik"):
        run(scenario)
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert told.startswith("listener SSL goes on with its certificates of before: broker: ssl.keystore.location = ")


def test_a_large_answer_is_encrypted_in_slices_while_others_are_served(tmp_path: Path) -> None:
    """No turn of the loop is as long as the whole would take; how long each is, benchmarks say."""

    async def scenario() -> None:
        echo = Echo()
        async with secured(echo, settings(tmp_path)) as server:
            context = client_context(tmp_path)
            with await in_thread(lambda: connected(server.address, context)) as client:
                echo.answer_bytes = 64 << 20
                turns = 0
                reading = asyncio.ensure_future(in_thread(lambda: asked(client, b"large")))
                while not reading.done():
                    await asyncio.sleep(0)
                    turns += bool(echo.handled)
                assert len(await reading) == len(b"large") + echo.answer_bytes
                assert turns > 20
                assert server.listener.outbox.unsent_bytes == 0

    run(scenario)


def test_stopping_waits_until_every_answer_has_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.answer_bytes = 16 << 20
        async with secured(echo, settings(tmp_path)) as server:
            context = client_context(tmp_path)

            def read_late() -> int:
                with connected(server.address, context) as client:
                    client.sendall(framed(b"large"))
                    time.sleep(0.2)  # by then the answer waits for its reader
                    size = len(b"large") + echo.answer_bytes
                    assert len(received(client, 4 + size)) == 4 + size
                    return len(client.recv(1))

            reading = asyncio.ensure_future(in_thread(read_late))
            await until(lambda: echo.handled == [b"large"])
            await server.listener.stop()
            assert await reading == 0, "the end is told, and nothing else"

    run(scenario)


def test_who_stops_speaking_in_the_midst_of_a_record_is_let_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(Echo(), settings(tmp_path)) as server:
            context = client_context(tmp_path)
            client = await in_thread(lambda: connected(server.address, context))
            await until(lambda: server.listener.connection_count == 1)
            raw = socket.socket(fileno=client.detach())
            raw.sendall(b"\x17\x03\x03\x40\x00half")
            raw.shutdown(socket.SHUT_WR)
            await until(lambda: server.listener.connection_count == 0)
            raw.close()

    run(scenario)


def test_bytes_that_were_changed_on_the_way_end_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with secured(echo, settings(tmp_path)) as server:
            context = client_context(tmp_path)
            client = await in_thread(lambda: connected(server.address, context))
            await until(lambda: server.listener.connection_count == 1)
            raw = socket.socket(fileno=client.detach())
            raw.sendall(b"\x17\x03\x03\x00\x30" + bytes(48))
            await until(lambda: server.listener.connection_count == 0)
            assert echo.handled == []
            raw.close()

    run(scenario)


def test_limits_for_connections_count_those_that_shake_hands(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(Echo(), settings(tmp_path), ListenerLimits(connections=2)) as server:
            context = client_context(tmp_path)
            first = await in_thread(lambda: connected(server.address, context))
            silent = socket.create_connection(server.address)
            await until(lambda: server.securing.handshake_count == 1)
            assert await in_thread(lambda: is_refused(server.address, context))
            silent.close()
            await until(lambda: server.securing.handshake_count == 0)
            assert await in_thread(lambda: served(server.address, context)) == b"hello"
            first.close()

    run(scenario)
