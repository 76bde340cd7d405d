"""ctypes bindings to the librdkafka of the confluent-kafka wheel: a producer and a consumer for load generation.

confluent-kafka creates a Python object per record, so it would measure Python. These bindings pass records in arrays:
one call enqueues thousands, one event reports thousands of deliveries, and calls release the GIL.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from ctypes.util import find_library
from functools import cache
from typing import Any, Final, NamedTuple

from chronik.bench.errors import BenchmarkError, LibrdkafkaNotInstalled
from chronik.wording import pluralize

PRODUCER, CONSUMER = 0, 1
PARTITION_ANY: Final = -1
OFFSET_BEGINNING: Final = -2
QUEUE_FULL: Final = -184
EVENT_DELIVERY, EVENT_ERROR = 0x1, 0x8
CONFIG_OK: Final = 0
ERROR_TEXT_BYTES: Final = 512
ALL_BROKERS_DOWN: Final = -187


class LibrdkafkaMessage(ctypes.Structure):
    """librdkafka's rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("length", c_size_t),
        ("key", c_void_p),
        ("key_length", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


_SIGNATURES: Final[Mapping[str, tuple[Any, list[Any]]]] = {
    "conf_new": (c_void_p, []),
    "conf_set": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]),
    "conf_set_events": (None, [c_void_p, c_int]),
    "conf_set_dr_msg_cb": (None, [c_void_p, c_void_p]),
    "conf_destroy": (None, [c_void_p]),
    "new": (c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
    "destroy": (None, [c_void_p]),
    "topic_new": (c_void_p, [c_void_p, c_char_p, c_void_p]),
    "topic_destroy": (None, [c_void_p]),
    "last_error": (c_int, []),
    "err2str": (c_char_p, [c_int]),
    "version": (c_int, []),
    "produce_batch": (c_int, [c_void_p, c_int32, c_int, POINTER(LibrdkafkaMessage), c_int]),
    "queue_get_main": (c_void_p, [c_void_p]),
    "queue_new": (c_void_p, [c_void_p]),
    "queue_destroy": (None, [c_void_p]),
    "queue_poll": (c_void_p, [c_void_p, c_int]),
    "event_type": (c_int, [c_void_p]),
    "event_error": (c_int, [c_void_p]),
    "event_error_string": (c_char_p, [c_void_p]),
    "event_message_count": (c_size_t, [c_void_p]),
    "event_message_next": (POINTER(LibrdkafkaMessage), [c_void_p]),
    "event_destroy": (None, [c_void_p]),
    "message_latency": (c_int64, [POINTER(LibrdkafkaMessage)]),
    "consume_start_queue": (c_int, [c_void_p, c_int32, c_int64, c_void_p]),
    "consume_stop": (c_int, [c_void_p, c_int32]),
    "consume_batch_queue": (c_ssize_t, [c_void_p, c_int, POINTER(c_void_p), c_size_t]),
    "init_transactions": (c_void_p, [c_void_p, c_int]),
    "begin_transaction": (c_void_p, [c_void_p]),
    "commit_transaction": (c_void_p, [c_void_p, c_int]),
    "error_string": (c_char_p, [c_void_p]),
    "error_destroy": (None, [c_void_p]),
}


@cache
def load_library() -> Any:
    """Return the functions of librdkafka, without their `rd_kafka_` prefix. Raises LibrdkafkaNotInstalled."""
    try:
        loaded = ctypes.CDLL(_path())
        without_gil_release = ctypes.PyDLL(_path())
    except OSError as error:
        raise LibrdkafkaNotInstalled from error
    functions = {name: _bind_function(loaded, name, *signature) for name, signature in _SIGNATURES.items()}
    # Freeing a record is faster than releasing and reacquiring the GIL.
    functions["message_destroy"] = _bind_function(without_gil_release, "message_destroy", None, [c_void_p])
    return type("Librdkafka", (), {name: staticmethod(function) for name, function in functions.items()})


def _path() -> str:
    try:
        files = importlib.metadata.files("confluent-kafka") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.startswith("librdkafka") and {".so", ".dylib", ".dll"} & set(file.suffixes):
            return str(file.locate())
    found = find_library("rdkafka")
    if found is None:
        raise LibrdkafkaNotInstalled
    return found


def _bind_function(loaded: ctypes.CDLL, name: str, result: Any, arguments: list[Any]) -> Any:
    function = getattr(loaded, f"rd_kafka_{name}")
    function.restype, function.argtypes = result, arguments
    return function


class DeliveryReport(NamedTuple):
    """A delivery report of a producer: the records of one batch and the latency of the first."""

    records: int
    latency_us: int


class ReceivedRecords(NamedTuple):
    """The number of records that a poll has received, and the size in bytes of one record."""

    records: int
    sample_bytes: int
    """Size of one of the records in bytes."""


NO_RECORDS: Final = ReceivedRecords(0, 0)


class LibrdkafkaClient:
    """A librdkafka client instance with one topic."""

    events = EVENT_DELIVERY | EVENT_ERROR
    discards_reports = False
    """Whether librdkafka's delivery reports are passed to a callback that ignores them."""

    def __init__(self, kind: int, config: Mapping[str, str], topic: str) -> None:
        rd = self._rd = load_library()
        error = ctypes.create_string_buffer(ERROR_TEXT_BYTES)
        conf = rd.conf_new()
        for name, value in config.items():
            if rd.conf_set(conf, name.encode(), value.encode(), error, ERROR_TEXT_BYTES) != CONFIG_OK:
                rd.conf_destroy(conf)
                raise BenchmarkError(error.value.decode())
        rd.conf_set_events(conf, self.events)
        if self.discards_reports:
            rd.conf_set_dr_msg_cb(conf, ctypes.cast(rd.version, c_void_p))
        self._client = rd.new(kind, conf, error, ERROR_TEXT_BYTES)
        if not self._client:
            rd.conf_destroy(conf)
            raise BenchmarkError(error.value.decode())
        self._topic = rd.topic_new(self._client, topic.encode(), None)
        self._events = rd.queue_get_main(self._client)

    def close(self) -> None:
        self._rd.queue_destroy(self._events)
        self._rd.topic_destroy(self._topic)
        self._rd.destroy(self._client)

    def _raise_error(self, code: int, operation: str) -> None:
        raise BenchmarkError(f"{operation}: {self._rd.err2str(code).decode()}")


class LibrdkafkaProducer(LibrdkafkaClient):
    """A librdkafka producer for benchmarks, which sends the same value many times."""

    def __init__(self, config: Mapping[str, str], topic: str, value: bytes, records_per_call: int) -> None:
        super().__init__(PRODUCER, config, topic)
        self._value = ctypes.create_string_buffer(value, len(value))
        address = ctypes.addressof(self._value)
        # librdkafka only reads the payload unless told to copy it, so all records share one.
        self._messages = (LibrdkafkaMessage * records_per_call)(
            *(LibrdkafkaMessage(payload=address, length=len(value)) for _ in range(records_per_call))
        )

    def enqueue(self, count: int) -> int:
        """Enqueue up to `count` records for sending, and return how many the queue has accepted."""
        accepted: int = self._rd.produce_batch(self._topic, PARTITION_ANY, 0, self._messages, count)
        if accepted < count:
            error_code = next(message.err for message in self._messages[:count] if message.err)
            if error_code != QUEUE_FULL:
                self._raise_error(error_code, "produce")
        return accepted

    def poll(self, timeout_ms: int) -> DeliveryReport | None:
        """Return the next delivery report, or None. Raises BenchmarkError if records could not be delivered."""
        rd = self._rd
        event = rd.queue_poll(self._events, timeout_ms)
        if not event:
            return None
        try:
            if rd.event_type(event) == EVENT_ERROR:
                _check_error(rd, event)
                return DeliveryReport(0, 0)
            count = rd.event_message_count(event)
            first = rd.event_message_next(event)
            if first.contents.err:
                self._raise_error(first.contents.err, f"{pluralize(count, 'record')} not delivered")
            return DeliveryReport(count, rd.message_latency(first))
        finally:
            rd.event_destroy(event)


class LibrdkafkaTransactionalProducer(LibrdkafkaProducer):
    """A transactional producer that receives delivery reports in a callback, like most applications.

    With events, another thread would have to process the reports while a commit waits. Without any reports, a commit
    checks for delivered records only every 10 ms.
    """

    events = EVENT_ERROR
    discards_reports = True

    def init_transactions(self, timeout_ms: int) -> None:
        """Initialize the producer for transactions. Raises BenchmarkError, as do the other methods."""
        self._check_error("init transactions", self._rd.init_transactions(self._client, timeout_ms))

    def begin(self) -> None:
        self._check_error("begin", self._rd.begin_transaction(self._client))

    def commit(self, timeout_ms: int) -> None:
        """Commit the transaction and wait until it is complete."""
        self._check_error("commit", self._rd.commit_transaction(self._client, timeout_ms))

    def _check_error(self, operation: str, error: int | None) -> None:
        if error:
            message_text = self._rd.error_string(error).decode()
            self._rd.error_destroy(error)
            raise BenchmarkError(f"{operation}: {message_text}")


class LibrdkafkaConsumer(LibrdkafkaClient):
    """A librdkafka consumer that reads all partitions of a topic from the beginning, without a group."""

    def __init__(self, config: Mapping[str, str], topic: str, partitions: int, records_per_call: int) -> None:
        super().__init__(CONSUMER, config, topic)
        self._partitions = partitions
        self._queue = self._rd.queue_new(self._client)
        self._records = (c_void_p * records_per_call)()
        for partition in range(partitions):
            if self._rd.consume_start_queue(self._topic, partition, OFFSET_BEGINNING, self._queue):
                self._raise_error(self._rd.last_error(), "consume")

    def consume(self, timeout_ms: int) -> ReceivedRecords:
        """Return the records that librdkafka has received, at most `records_per_call`."""
        rd = self._rd
        count: int = rd.consume_batch_queue(self._queue, timeout_ms, self._records, len(self._records))
        if count < 0:
            self._raise_error(rd.last_error(), "consume")
        if not count:
            self._check_errors()
            return NO_RECORDS
        received = self._records[:count]
        last = LibrdkafkaMessage.from_address(received[-1] or 0)
        last_error_code, sample_bytes = last.err, last.length
        destroy = rd.message_destroy
        for record in received:
            destroy(record)
        if last_error_code:
            self._raise_error(last_error_code, "consume")
        return ReceivedRecords(count, sample_bytes)

    def close(self) -> None:
        for partition in range(self._partitions):
            self._rd.consume_stop(self._topic, partition)
        self._rd.queue_destroy(self._queue)
        super().close()

    def _check_errors(self) -> None:
        while event := self._rd.queue_poll(self._events, 0):
            try:
                _check_error(self._rd, event)
            finally:
                self._rd.event_destroy(event)


def _check_error(rd: Any, event: int) -> None:
    """Raise BenchmarkError if all brokers are down. librdkafka recovers from other errors itself."""
    if rd.event_type(event) == EVENT_ERROR and rd.event_error(event) == ALL_BROKERS_DOWN:
        raise BenchmarkError(rd.event_error_string(event).decode())
