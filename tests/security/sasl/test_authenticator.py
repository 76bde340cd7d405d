"""Authenticator: delayed and logged rejections, priorities of password checks, and keys of unknown users.

SCRAM messages need no thread: valid ones are answered in the same event-loop iteration, failures after a delay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Any, Final, cast

import pytest

from chronik.clock import ManualClock, SystemClock
from chronik.metadata.commands.security import AlterScramUser, ScramKeys
from chronik.request_reply import ConnectedClient
from chronik.security.sasl.authenticator import (
    ENTRIES_MAX,
    FAILURE_TTL_SECONDS,
    SUCCESS_TTL_SECONDS,
    Authenticator,
    LoginHistory,
    ScramUsers,
)
from chronik.security.sasl.fair_pool import Priority
from chronik.security.sasl.oauthbearer import INVALID_TOKEN_RESPONSE, OAuthBearerClient
from chronik.security.sasl.outcomes import OAUTHBEARER, PLAIN, HashPassword, InvalidToken, SaslChallenge, ValidToken
from chronik.security.sasl.scram import ScramClient
from chronik.security.sasl.scram_keys import (
    ITERATIONS_MIN,
    MECHANISMS_BY_NAME,
    MECHANISMS_BY_NUMBER,
    SALT_BYTES,
    ScramKeySet,
    ScramMechanism,
    derive_keys,
    salt_password,
)
from chronik.security.sasl.session import SaslResponse, SaslSession
from tests.metadata.metadata_world import MetadataWorld

DELAY_MS = 100
SCRAM = MECHANISMS_BY_NAME["SCRAM-SHA-256"]
PASSWORD, SALT = b"correct", b"salt"

SCRAM_SHA_512 = MECHANISMS_BY_NAME["SCRAM-SHA-512"]
PEER = ConnectedClient("127.0.0.1", 1, 1)
SHORT_DELAY_MS = 20

HOME, OFFICE = "192.0.2.1", "192.0.2.2"

SHA_256 = MECHANISMS_BY_NAME["SCRAM-SHA-256"]


def reject(token: str) -> ValidToken:
    raise InvalidToken("expired")


def test_rejected_token_response_is_delayed_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def send_token() -> tuple[bytes, float]:
        authenticator = Authenticator(cast(Any, None), SystemClock(), lambda: DELAY_MS, reject)
        session = authenticator.create_session(lambda: (OAUTHBEARER,), lambda mechanism: 0)
        session.handshake(OAUTHBEARER, 1, authenticator.monotonic())
        began = time.monotonic()
        answer = await authenticator.respond(
            session, ConnectedClient("192.0.2.1", 4711, 1), OAuthBearerClient("a.b.c").initial_message()
        )
        authenticator.close()
        assert answer.error is None, "RFC 7628: the client must acknowledge the rejection"
        return answer.data, time.monotonic() - began

    with caplog.at_level(logging.INFO, "chronik.security"):
        data, seconds = asyncio.run(send_token())
    assert data == INVALID_TOKEN_RESPONSE.encode()
    assert seconds >= DELAY_MS / 1000
    assert "192.0.2.1:4711: authentication with OAUTHBEARER failed: token rejected: expired" in caplog.text
    assert "a.b.c" not in caplog.text


class SharedCredentials:
    """A credential store with the same password for every user."""

    def get_keys_of_any_mechanism(self, user: str) -> tuple[ScramMechanism, ScramKeySet, bool]:
        return (
            SCRAM,
            derive_keys(SCRAM, salt_password(PASSWORD, SALT, ITERATIONS_MIN, SCRAM.digest), SALT, ITERATIONS_MIN),
            True,
        )


GUESSES: Final = 120


def test_verified_user_is_checked_before_queued_guesses_of_other_networks() -> None:
    async def checks_before_alice() -> int:
        authenticator = Authenticator(cast(Any, SharedCredentials()), SystemClock(), lambda: 0)
        checked = 0

        async def log_in(host: str, password: bytes) -> None:
            nonlocal checked
            session = authenticator.create_session(lambda: (PLAIN,), lambda mechanism: 0)
            session.handshake(PLAIN, 1, authenticator.monotonic())
            answer = await authenticator.respond(session, ConnectedClient(host, 4711, 1), b"\0alice\0" + password)
            assert (answer.error is None) == (password == PASSWORD)
            checked += 1

        await log_in("192.0.2.1", PASSWORD)
        guesses = [asyncio.ensure_future(log_in(f"192.0.2.{2 + number}", b"guess")) for number in range(GUESSES)]
        await asyncio.sleep(0)
        checked = 0
        await log_in("192.0.2.1", PASSWORD)
        before = checked - 1
        await asyncio.gather(*guesses)
        authenticator.close()
        return before

    # On a busy machine, threads finish several checks before the event loop runs.
    assert asyncio.run(checks_before_alice()) <= GUESSES / 4


class Alice:
    def keys(self, scram: ScramMechanism, _user: str) -> tuple[ScramKeySet, bool]:
        return derive_keys(scram, salt_password(b"right", b"salt", 4096, scram.digest), b"salt", 4096), True


def start_session() -> tuple[Authenticator, SaslSession]:
    authenticator = Authenticator(cast(Any, Alice()), ManualClock(), lambda: SHORT_DELAY_MS)
    session = authenticator.create_session(lambda: [SCRAM_SHA_512.name], lambda _: 0)
    session.handshake(SCRAM_SHA_512.name, 1, 0.0)
    return authenticator, session


def final_message(client: ScramClient, challenge: bytes) -> bytes:
    outcome = client.step(challenge)
    assert isinstance(outcome, HashPassword)
    answer = client.continue_with_hash(
        salt_password(outcome.password, outcome.salt, outcome.iterations, outcome.digest)
    )
    assert isinstance(answer, SaslChallenge)
    return answer.data


def test_valid_scram_messages_are_answered_immediately() -> None:
    authenticator, session = start_session()
    client = ScramClient(SCRAM_SHA_512, "alice", "right", "nonce")
    challenge = authenticator.respond_or_await(session, PEER, client.initial_message())
    assert isinstance(challenge, SaslResponse)
    assert challenge.error is None
    last = authenticator.respond_or_await(session, PEER, final_message(client, challenge.data))
    assert isinstance(last, SaslResponse)
    assert last.error is None
    assert session.is_authenticated


def test_wrong_scram_proof_is_answered_after_delay() -> None:
    async def scenario() -> None:
        authenticator, session = start_session()
        client = ScramClient(SCRAM_SHA_512, "alice", "wrong", "nonce")
        challenge = await authenticator.respond(session, PEER, client.initial_message())
        began = asyncio.get_running_loop().time()
        rejection = authenticator.respond_or_await(session, PEER, final_message(client, challenge.data))
        assert not isinstance(rejection, SaslResponse)
        assert (await rejection).error is not None
        assert asyncio.get_running_loop().time() - began >= SHORT_DELAY_MS / 1000
        assert not session.is_authenticated

    asyncio.run(scenario())


def test_malformed_scram_message_is_answered_after_delay() -> None:
    authenticator, session = start_session()
    rejection = authenticator.respond_or_await(session, PEER, b"let me in")
    assert not isinstance(rejection, SaslResponse)
    assert asyncio.run(asyncio.wait_for(rejection, 20)).error is not None


def test_verified_user_has_high_priority_on_its_network_only() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.record_success(HOME, "alice")
    assert history.priority(HOME, "alice") is Priority.HIGH
    assert history.priority(OFFICE, "alice") is history.priority(HOME, "bob") is Priority.NORMAL


def test_failed_login_lowers_network_priority_except_for_verified_users() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.record_success(HOME, "alice")
    history.record_failure(HOME, "bob")
    assert history.priority(HOME, "carol") is Priority.LOW
    assert history.priority(HOME, "alice") is Priority.HIGH
    assert history.priority(OFFICE, "bob") is Priority.NORMAL


def test_failed_login_revokes_high_priority_of_its_user() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.record_success(HOME, "alice")
    history.record_failure(HOME, "alice")
    assert history.priority(HOME, "alice") is Priority.LOW
    history.record_success(HOME, "alice")
    assert history.priority(HOME, "alice") is Priority.HIGH


def test_login_results_expire() -> None:
    clock = ManualClock()
    history = LoginHistory(clock.monotonic)
    history.record_success(HOME, "alice")
    history.record_failure(OFFICE, "bob")
    clock.advance(FAILURE_TTL_SECONDS)
    assert history.priority(OFFICE, "bob") is Priority.NORMAL
    clock.advance(SUCCESS_TTL_SECONDS)
    assert history.priority(HOME, "alice") is Priority.NORMAL


def test_login_history_is_bounded_and_failures_evict_no_successes() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.record_success(HOME, "alice")
    for number in range(ENTRIES_MAX + 10):
        history.record_failure(f"network-{number}", "alice")
    assert history.priority(HOME, "alice") is Priority.HIGH
    assert len(history._failed) == ENTRIES_MAX
    for number in range(ENTRIES_MAX + 10):
        history.record_success(f"network-{number}", "alice")
    assert len(history._verified) == ENTRIES_MAX


NAMES = [f"user-{number}" for number in range(2000)]


def world_with(*iterations: int, secret: bytes = b"secret of the cluster") -> MetadataWorld:
    world = MetadataWorld()
    for number, count in enumerate(iterations):
        keys = ScramKeys(SHA_256.number, b"0123456789abcdefghijklmnop", b"s" * 32, b"t" * 32, count)
        world.accept(AlterScramUser(f"known-{number}", (keys,), secret=secret))
    return world


def users_of(world: MetadataWorld) -> ScramUsers:
    return ScramUsers(lambda: world.image)


def iterations_of(world: MetadataWorld, names: list[str]) -> Counter[int]:
    users = users_of(world)
    return Counter(users.keys(SHA_256, name)[0].iterations for name in names)


def test_iterations_of_unknown_users_follow_those_of_known_users() -> None:
    world = world_with(*[4096] * 6, *[8192] * 3, 16384)
    assert iterations_of(world, [f"known-{number}" for number in range(10)]) == {4096: 6, 8192: 3, 16384: 1}
    found = iterations_of(world, NAMES)
    for iterations, users in ((4096, 6), (8192, 3), (16384, 1)):
        assert found[iterations] == pytest.approx(len(NAMES) * users / 10, rel=0.25)


def test_iterations_of_unknown_users_are_the_default_without_users() -> None:
    assert iterations_of(MetadataWorld(), NAMES[:10]) == {ITERATIONS_MIN: 10}


def test_keys_of_unknown_users_are_stable_over_nodes_and_restarts() -> None:
    one, other = users_of(world_with(4096, 8192)), users_of(world_with(4096, 8192))
    for scram in MECHANISMS_BY_NUMBER.values():
        assert [one.keys(scram, name) for name in NAMES[:100]] == [other.keys(scram, name) for name in NAMES[:100]]


def test_keys_of_unknown_users_depend_on_the_cluster_secret() -> None:
    one, other = users_of(world_with(4096, 8192, secret=b"one")), users_of(world_with(4096, 8192, secret=b"other"))
    found = [(one.keys(SHA_256, name)[0], other.keys(SHA_256, name)[0]) for name in NAMES[:100]]
    assert all(a.salt != b.salt for a, b in found)
    assert any(a.iterations != b.iterations for a, b in found)


def test_adding_a_user_changes_few_keys_of_unknown_users() -> None:
    before = users_of(world_with(*[4096] * 50, *[8192] * 50))
    after = users_of(world_with(*[4096] * 50, *[8192] * 51))
    changed = sum(before.keys(SHA_256, name) != after.keys(SHA_256, name) for name in NAMES)
    assert changed <= len(NAMES) * 0.02
    assert all(len(after.keys(SHA_256, name)[0].salt) == SALT_BYTES for name in NAMES[:20])
