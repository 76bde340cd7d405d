"""Seeded fuzzing of the security code: python -m tests.fuzz --security 20000 …

`said` fuzzes functions that need no broker, `asked` a real broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronik.protocol.errors import ErrorCode
from tests.raw import RawClient
from tests.security import fuzz_acls, fuzz_names
from tests.security.fuzz_changes import Changes
from tests.security.fuzz_framework import fuzz, summarize
from tests.security.sasl import fuzz_frames, fuzz_messages
from tests.security.sasl.sasl_broker import SaslBroker, authenticate

TARGETS: Final = (*fuzz_messages.TARGETS, *fuzz_names.TARGETS, *fuzz_acls.TARGETS)

CONFIGS: Final = {
    "authorizer.class.name": "standard",
    "super.users": "User:ANONYMOUS",
    "connection.failed.authentication.delay.ms": "0",
}


def fuzz_functions(seed: int, count: int) -> Iterator[str]:
    """Fuzz all targets, and yield a summary of each. Raises AssertionError."""
    for target in TARGETS:
        yield summarize(target, seed, fuzz(target, seed, count))


def fuzz_broker(seed: int, count: int) -> Iterator[str]:
    """Fuzz logins and administrative requests of a broker, and yield summaries.

    Raises:
        AssertionError: A response is wrong, or the broker has failed.
    """
    with SaslBroker(**CONFIGS) as broker:
        assert isinstance(broker, SaslBroker)
        pid = broker.pid
        broker.add_user(fuzz_frames.USER, fuzz_frames.PASSWORD)
        tally = fuzz_frames.converse(broker.bootstrap, seed, count)
        yield (
            f"logins: seed {seed}: {count:,} conversations, {tally.let_in:,} after authentication: {tally.answered:,} "
            f"frames answered, {tally.closed:,} closed, slowest {tally.slowest_seconds * 1000:.0f} ms"
        )
        codes = Changes(broker.open_bootstrap, seed).run(count)
        yield f"changes: seed {seed}: {count:,} requests about users, quotas and ACLs: {dict(codes.most_common())}"
        check(broker, pid)


def check(broker: SaslBroker, pid: int) -> None:
    assert broker.pid == pid, "the broker has crashed"
    with RawClient(broker.bootstrap) as client:
        response = authenticate(client, "SCRAM-SHA-256", fuzz_frames.USER, fuzz_frames.PASSWORD)
        assert response.error_code == ErrorCode.NONE, response
    for word in ("Traceback", "ERROR"):
        assert word not in broker.log, broker.log[max(0, broker.log.index(word) - 500) :][:3000]
