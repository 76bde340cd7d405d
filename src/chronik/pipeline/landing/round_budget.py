"""The size of landing rounds, adapted to the speed of the brokers, Spark and the store. Pure.

A round that takes long delays all topics, and loses more work when the driver fails. If the store is slow or throttles
requests, rounds therefore become smaller; the records wait in the topics, not in the driver. They become larger again
when rounds are fast.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from chronik.limits import MIB

ROUND_BYTES_MIN: Final = 16 * MIB
ROUND_BYTES_START: Final = 256 * MIB
ROUND_BYTES_MAX: Final = 4096 * MIB
"""Minimum, initial and maximum bytes of keys and values that a round reads from all topics."""

ROUND_SECONDS_TARGET: Final = 10.0
ROUND_SECONDS_MAX: Final = 60.0
"""Longest round that is accepted because many topics have records, each of which takes some time."""

GROWTH_MAX: Final = 4.0
"""Maximum factor by which a round grows after a fast one."""

ROUNDS_REMEMBERED: Final = 20

_THROTTLED: Final = re.compile(
    r"\b(?:SlowDown|Slow Down|503|429|Too ?Many ?Requests|TooManyRequestsException|RequestLimitExceeded|"
    r"reduce your request rate|Throttl\w*)\b",
    re.IGNORECASE,
)


def is_throttling_error(message: str) -> bool:
    """Return whether a store has rejected a request because there are too many."""
    return _THROTTLED.search(message) is not None


class RoundBudget:
    """The maximum bytes of the next landing round."""

    def __init__(self) -> None:
        self.bytes_max: float = ROUND_BYTES_START
        self._seconds_per_topic: deque[float] = deque(maxlen=ROUNDS_REMEMBERED)

    @property
    def is_reduced(self) -> bool:
        """Whether rounds are smaller than the initial size, because they were slow or throttled."""
        return self.bytes_max < ROUND_BYTES_START

    def record_round(self, size_bytes: int, seconds: float, topics: int, *, is_throttled: bool) -> None:
        """Adapt the size to a round that read `size_bytes` of `topics` topics in `seconds`."""
        if topics:
            self._seconds_per_topic.append(seconds / topics)
        target_s = self._compute_target_seconds(topics)
        if is_throttled:
            self.bytes_max = max(ROUND_BYTES_MIN, self.bytes_max / 2)
        elif seconds > target_s:
            if size_bytes:
                self.bytes_max = max(ROUND_BYTES_MIN, min(self.bytes_max, size_bytes * target_s / seconds))
        elif size_bytes >= self.bytes_max / 2:  # a round with few records does not show the speed of large ones
            growth = min(GROWTH_MAX, target_s / max(seconds, target_s / GROWTH_MAX))
            self.bytes_max = min(ROUND_BYTES_MAX, self.bytes_max * growth)

    def _compute_target_seconds(self, topics: int) -> float:
        """Return the accepted duration: small rounds do not become faster if most of the time is spent per topic."""
        fixed_s = topics * min(self._seconds_per_topic, default=0.0)
        return min(ROUND_SECONDS_MAX, max(ROUND_SECONDS_TARGET, 2 * fixed_s))
