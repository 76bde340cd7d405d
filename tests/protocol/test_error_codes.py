"""Error codes have the numbers, names and retriability of Kafka."""

from __future__ import annotations

import copy
import pickle

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from chronik.protocol.errors import CorruptRecords, ErrorCode, InvalidRecord, KafkaError, RecordsTooLarge


def test_error_codes_match_kafka() -> None:
    ours = [(code.value, code.name, code.retriable) for code in ErrorCode]
    assert ours == [(int(code.value), code.name.upper(), code.retriable) for code in KioErrorCode]
    assert len(ours) > 130


def test_error_code_equals_wire_number() -> None:
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert [10].index(ErrorCode.MESSAGE_TOO_LARGE) == 0
    assert ErrorCode.MESSAGE_TOO_LARGE.to_bytes(2, "big") == b"\x00\x0a"


def test_error_messages_are_one_sentence() -> None:
    for code in ErrorCode:
        assert code.message.endswith(".")
        assert len(code.message) < 80


def test_kafka_error_uses_message_of_code_by_default() -> None:
    assert KafkaError(ErrorCode.NOT_CONTROLLER).message == ErrorCode.NOT_CONTROLLER.message
    assert KafkaError(ErrorCode.NOT_CONTROLLER, "ask node 3").message == "ask node 3"
    assert str(KafkaError(ErrorCode.NOT_CONTROLLER, "ask node 3")) == "NOT_CONTROLLER: ask node 3"


@pytest.mark.parametrize(
    "error",
    [KafkaError(ErrorCode.NONE), CorruptRecords("damaged"), InvalidRecord("refused"), RecordsTooLarge("a bomb")],
    ids=lambda error: type(error).__name__,
)
def test_copied_error_equals_original(error: KafkaError) -> None:
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert (twin.code, twin.message) == (error.code, error.message)
