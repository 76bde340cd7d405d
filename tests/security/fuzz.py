"""Everything about security that strangers can say, by a seed: python -m tests.fuzz --security 20000 …

`said` takes what needs no broker, `asked` what is asked of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronik.protocol.errors import ErrorCode
from tests.raw import RawClient
from tests.security import fuzz_acls, fuzz_names
from tests.security.fuzz_changes import Changes
from tests.security.fuzzing import fuzz, told
from tests.security.sasl import fuzz_frames, fuzz_messages
from tests.security.sasl.asking import AskingBroker, authenticate

TARGETS: Final = (*fuzz_messages.TARGETS, *fuzz_names.TARGETS, *fuzz_acls.TARGETS)

CONFIGS: Final = {
    "authorizer.class.name": "standard",
    "super.users": "User:ANONYMOUS",
    "connection.failed.authentication.delay.ms": "0",
}


def said(seed: int, count: int) -> Iterator[str]:
    """Says what came of each target. Raises AssertionError."""
    for target in TARGETS:
        yield told(target, seed, fuzz(target, seed, count))


def asked(seed: int, count: int) -> Iterator[str]:
    """Says what came of conversations and changes. Raises AssertionError, also when the broker is not well
    afterwards."""
    with AskingBroker(**CONFIGS) as broker:
        assert isinstance(broker, AskingBroker)
        pid = broker.pid
        broker.add_user(fuzz_frames.USER, fuzz_frames.PASSWORD)
        tally = fuzz_frames.converse(broker.bootstrap, seed, count)
        yield (
            f"logins: seed {seed}: {count:,} conversations, {tally.let_in:,} once let in: {tally.answered:,} frames "
            f"answered, {tally.closed:,} closed, slowest {tally.slowest_seconds * 1000:.0f} ms"
        )
        codes = Changes(broker.open_bootstrap, seed).run(count)
        yield f"changes: seed {seed}: {count:,} requests of users, quotas and ACLs: {dict(codes.most_common())}"
        check(broker, pid)


def check(broker: AskingBroker, pid: int) -> None:
    assert broker.pid == pid, "the broker died"
    with RawClient(broker.bootstrap) as client:
        came = authenticate(client, "SCRAM-SHA-256", fuzz_frames.USER, fuzz_frames.PASSWORD)
        assert came.error_code == ErrorCode.NONE, came
    for trouble in ("Traceback", "ERROR"):
        assert trouble not in broker.log, broker.log[max(0, broker.log.index(trouble) - 500) :][:3000]
