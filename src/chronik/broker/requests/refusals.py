"""Batches of idempotent producers that were refused a moment ago, and what the producers had sent after them.

Producers send several batches without waiting for answers. The first may find a node that does not lead; if the node
comes to lead before it gets to the second, that one seems to leave a gap, or to be the first of all. To a gap Kafka
says OUT_OF_ORDER_SEQUENCE_NUMBER, and librdkafka begins a new epoch and sends everything again: also what it had sent
to an earlier leader, which had stored it and died before it could say so. It would be there twice. So what follows a
refused batch is refused in the same way: the client sends all of them again, in order.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from chronik.clock import Clock
from chronik.log.producers import ProducerStates
from chronik.metadata.names import name_fault
from chronik.protocol.batch import BatchHeader, Bytes, parse_header
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError
from chronik.protocol.varint import INT32_MAX

REFUSALS: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)
"""Errors after which a client sends the same batch again."""

FOLLOWING_SECONDS: Final = 12.0
"""How long batches may come that were sent before the client heard of the refusal: its answer waits for those of
earlier requests, usually for the ten seconds after which a lagging follower does not count any more. Later a gap is
reported as such."""

PRODUCERS_MAX: Final = 100_000
"""With more of them the oldest are forgotten. With the longest names they take some 60 MB."""

Topic = str | bytes


class _Key(NamedTuple):
    topic: Topic
    partition: int
    producer_id: int
    producer_epoch: int


class _Refused(NamedTuple):
    sequence: int
    code: ErrorCode
    at: float


class RefusedBatches:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[_Key, _Refused] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def note(self, topic: Topic, partition: int, records: Bytes | None, code: ErrorCode) -> None:
        """Notes that the records were answered with that error."""
        if code not in REFUSALS or not records or not _can_exist(topic):
            return
        try:
            header = parse_header(records)
        except CorruptRecords:
            return
        self.note_header(topic, partition, header, code)

    def note_header(self, topic: Topic, partition: int, header: BatchHeader, code: ErrorCode) -> None:
        """Notes a refused batch, even a stored one: its leader's term has ended, and what it stored may be lost."""
        if code not in REFUSALS or not header.has_producer_id:
            return
        key, now = _key(topic, partition, header), self._clock.monotonic()
        known = self._refused.pop(key, None)
        if known is None or _is_over(known, now) or not _follows(header.base_sequence, known.sequence):
            known = _Refused(header.base_sequence, code, now)
        self._refused[key] = known
        self._forget_old(now)

    def _forget_old(self, now: float) -> None:
        while len(self._refused) > PRODUCERS_MAX or _is_over(next(iter(self._refused.values())), now):
            del self._refused[next(iter(self._refused))]

    def check(self, topic: Topic, partition: int, header: BatchHeader, producers: ProducerStates) -> None:
        """Raises KafkaError, as for the refused batch, when this one was sent after it. One that is known to be next
        passes: the other has arrived meanwhile, here or at another leader."""
        refused = self._refused.get(_key(topic, partition, header))
        if refused is None:
            return
        if _is_over(refused, self._clock.monotonic()):
            del self._refused[_key(topic, partition, header)]
        elif _follows(header.base_sequence, refused.sequence) and not producers.continues(header):
            raise KafkaError(refused.code)


def _can_exist(topic: Topic) -> bool:
    """Names that no topic can have are not remembered: nobody will lead it, and they may have 32,000 characters."""
    return isinstance(topic, bytes) or name_fault(topic) is None


def _key(topic: Topic, partition: int, header: BatchHeader) -> _Key:
    return _Key(topic, partition, header.producer_id, header.producer_epoch)


def _follows(sequence: int, refused: int) -> bool:
    """Compares sequence numbers, which begin at 0 again after 2^31 - 1."""
    return 0 < (sequence - refused) & INT32_MAX <= INT32_MAX // 2


def _is_over(refused: _Refused, now: float) -> bool:
    return now - refused.at > FOLLOWING_SECONDS
