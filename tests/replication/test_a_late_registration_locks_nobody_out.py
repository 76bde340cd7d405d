from __future__ import annotations

import pytest

from chronik.metadata.apply import apply
from chronik.metadata.commands import Envelope, RegisterBroker
from chronik.metadata.image import Image
from chronik.protocol.errors import ErrorCode

EARLIER, LATER = b"e" * 16, b"l" * 16


def registration(incarnation: bytes, sequence: int) -> Envelope:
    return Envelope(1, incarnation, sequence, 0, RegisterBroker(1, "host", 9092, None, incarnation, b"d" * 16))


@pytest.mark.xfail(
    strict=True,
    reason="sessions know an earlier life only if a command of it was applied: one whose first command comes after"
    " those of the next life passes for a newer one, and the life that runs is told that it is over",
)
def test_the_registration_of_a_dead_life_that_comes_last_does_not_end_the_one_that_runs() -> None:
    """A broker is killed while its registration is under way; it starts again, and its next one is quicker."""
    image = Image()
    assert apply(image, registration(LATER, 1), 1).result.code is ErrorCode.NONE
    apply(image, registration(EARLIER, 1), 2)
    again = apply(image, registration(LATER, 2), 3).result
    assert again.code is ErrorCode.NONE
    assert image.brokers[1].incarnation == LATER
