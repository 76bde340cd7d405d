"""Tests that a replay restores records: byte for byte from raw tables, equal values from decoded tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.client.records import ConsumedRecord
from chronik.pipeline.maintenance.replay import (
    ReplayBound,
    ReplayFailedError,
    ReplayRejectedError,
    format_header_names_warning,
    replay,
)
from chronik.pipeline.maintenance.replay_tasks import RowGroup, read_ordered_rows, split_into_windows
from chronik.pipeline.records.columns import ColumnSelection, convert_records_to_columns, iter_records_of_batches
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.topic_table import TableMissingError, TopicTable
from chronik.pipeline.tables.values.record_rebuild import build_outgoing_rows
from chronik.pipeline.tables.values.table_schema import INFERRED
from chronik.protocol.batch import HEADER_BYTES, parse_header
from chronik.protocol.records import Record, encode_batch
from chronik.testing import Broker
from tests.pipeline.table_fixtures import (
    NOON_2024_05_01_MS,
    TOPIC,
    build_record_columns,
    commit_rows,
    compact_table,
    create_empty_table,
)
from tests.run_size import sized

pytestmark = pytest.mark.chronik_topic(partitions=3)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def records_by_partition(broker: Broker, topic: str) -> dict[int, list[ConsumedRecord]]:
    found: dict[int, list[ConsumedRecord]] = {}
    for record in broker.records(topic):
        found.setdefault(record.partition, []).append(record)
    return found


def values(broker: Broker, topic: str) -> dict[int, list[bytes | None]]:
    return {
        partition: [each.value for each in found] for partition, found in records_by_partition(broker, topic).items()
    }


def create_table(root: Path, partitions: int = 3, rows: int = 40) -> TopicTable:
    """Create a table with numbered records of several days, committed in several ranges and not in time order."""
    table = create_empty_table(root, TableKind.RAW)
    for start in range(0, rows, 10):
        for partition in range(partitions):
            offsets = range(start, start + 10)
            times = [NOON_2024_05_01_MS + offset * HOUR_MS + (offset % 3) * DAY_MS for offset in offsets]
            values_named = [b"%d/%d" % (partition, offset) for offset in offsets]
            commit_rows(table, partition, build_record_columns(offsets, values_named, timestamps_ms=times))
    return table


def values_named(partition: int, *offsets: int) -> list[bytes]:
    return [b"%d/%d" % (partition, offset) for offset in offsets]


@pytest.mark.chronik_topic(partitions=3, configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
def test_replay_of_raw_table_restores_every_byte(tmp_path: Path, chronik_broker: Broker, chronik_topic: str) -> None:
    table = create_empty_table(tmp_path, TableKind.RAW)
    keys = [None, b"", b"k", b"\x00\xff", b"k"]
    contents = [b"", None, b"\x00\xff", b'{"a":1}', b"x" * 100_000]
    headers: list[Sequence[tuple[str, bytes | None]]] = [
        (), [("a", b"1"), ("a", None), ("", b"")], [("ü", b"\xff")], (), [("z", b"z" * 1000)],
    ]  # fmt: skip
    times = [NOON_2024_05_01_MS, 0, 253_402_300_800_000 + 5, NOON_2024_05_01_MS - 1, 2**62]
    commit_rows(table, 1, build_record_columns(range(7, 12), contents, keys=keys, headers=headers, timestamps_ms=times))
    done = replay(TOPIC, chronik_topic, bootstrap=chronik_broker.bootstrap, table_root=str(tmp_path))
    assert (done.records, done.partitions_kept) == (5, True)
    found = records_by_partition(chronik_broker, chronik_topic)
    assert list(found) == [1]
    assert [each.key for each in found[1]] == keys
    assert [each.value for each in found[1]] == contents
    assert [list(each.headers) for each in found[1]] == [list(each) for each in headers]
    assert [each.timestamp for each in found[1]] == times


def test_replay_reports_replaced_header_names(tmp_path: Path, chronik_broker: Broker, chronik_topic: str) -> None:
    """Header names are strings in tables, so bytes that are not UTF-8 are lost."""
    batch = encode_batch([Record(offset, 1, None, b"v", ((f"h{offset}", b""), ("\u00e9", b""))) for offset in range(4)])
    for name, other in ((b"h1", b"\xff1"), (b"h2", b"\xc3\xa9")):
        batch = batch.replace(name, other)
    body = batch[HEADER_BYTES:]
    table = create_empty_table(tmp_path, TableKind.RAW)
    commit_rows(
        table,
        0,
        convert_records_to_columns([*iter_records_of_batches([(parse_header(batch, 0), body)])], ColumnSelection()),
    )
    done = replay(TOPIC, chronik_topic, bootstrap=chronik_broker.bootstrap, table_root=str(tmp_path))
    assert (done.records, done.names_replaced) == (4, 1)
    names = [record.headers[0][0] for record in chronik_broker.records(chronik_topic)]
    assert names == ["h0", "\ufffd1", "\u00e9", "h3"]
    assert "1 of them with header names that were not UTF-8" in format_header_names_warning(done)


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("window_bytes", [1, 10**9])
def test_replay_keeps_offset_order_within_partitions(
    tmp_path: Path,
    chronik_broker: Broker,
    chronik_topic: str,
    monkeypatch: pytest.MonkeyPatch,
    compacted: bool,
    window_bytes: int,
) -> None:
    table = create_table(tmp_path)
    if compacted:
        assert compact_table(table.uri).files_removed > 3
    monkeypatch.setattr(split_into_windows, "__defaults__", (window_bytes,))
    rounds: list[int] = []
    done = replay(
        TOPIC,
        chronik_topic,
        bootstrap=chronik_broker.bootstrap,
        table_root=str(tmp_path),
        offsets_per_round=15,
        progress=lambda records_by_partition, rest: rounds.append(records_by_partition + rest.offsets),
    )
    assert done.records == 120
    assert rounds == [120, 120, 120], "expected three rounds of fifteen offsets per partition"
    assert values(chronik_broker, chronik_topic) == {p: values_named(p, *range(40)) for p in range(3)}


def test_replay_to_fewer_partitions_partitions_by_key(
    tmp_path: Path, chronik_broker: Broker, chronik_topic: str
) -> None:
    create_table(tmp_path, partitions=4, rows=10)
    done = replay(TOPIC, chronik_topic, bootstrap=chronik_broker.bootstrap, table_root=str(tmp_path))
    assert (done.records, done.partitions_kept) == (40, False)
    found = values(chronik_broker, chronik_topic)
    assert len(found) == 1, "all records have the same key"
    (all_values,) = found.values()
    for partition in range(4):
        assert [each for each in all_values if each and each.startswith(b"%d/" % partition)] == values_named(
            partition, *range(10)
        )


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (ReplayBound(offset=37), ReplayBound(), {0: range(37, 40), 1: range(37, 40), 2: range(37, 40)}),
        (ReplayBound(), ReplayBound(offset=2), {0: range(2), 1: range(2), 2: range(2)}),
        (ReplayBound(offsets={1: 38, 2: 0}), ReplayBound(offsets={0: 5, 1: 40, 2: 1}), {1: range(38, 40), 2: range(1)}),
        (ReplayBound(offset=40), ReplayBound(), {}),
        (ReplayBound(offset=0), ReplayBound(offset=10**12), {0: range(40), 1: range(40), 2: range(40)}),
    ],
)
def test_replay_honours_offset_bounds(
    tmp_path: Path,
    chronik_broker: Broker,
    chronik_topic: str,
    start: ReplayBound,
    end: ReplayBound,
    expected: dict[int, range],
) -> None:
    create_table(tmp_path)
    replay(TOPIC, chronik_topic, bootstrap=chronik_broker.bootstrap, table_root=str(tmp_path), start=start, end=end)
    assert values(chronik_broker, chronik_topic) == {p: values_named(p, *offsets) for p, offsets in expected.items()}


def test_replay_honours_time_bounds(tmp_path: Path, chronik_broker: Broker, chronik_topic: str) -> None:
    table = create_empty_table(tmp_path, TableKind.RAW)
    hours = [0, 30, 10, 20, 60, 50]
    commit_rows(
        table,
        0,
        build_record_columns(
            range(6), values_named(0, *range(6)), timestamps_ms=[_timestamp_at(hour) for hour in hours]
        ),
    )
    commit_rows(
        table, 1, build_record_columns(range(2), values_named(1, *range(2)), timestamps_ms=[_timestamp_at(0), -1])
    )
    commit_rows(
        table, 2, build_record_columns(range(2), values_named(2, *range(2)), timestamps_ms=[2**60, _timestamp_at(1)])
    )
    start, end = ReplayBound(time=_datetime_at(20)), ReplayBound(time=_datetime_at(55))
    replay(TOPIC, chronik_topic, bootstrap=chronik_broker.bootstrap, table_root=str(tmp_path), start=start, end=end)
    # Like a consumer that seeks to a timestamp: all records from the first one at or after it.
    assert values(chronik_broker, chronik_topic) == {0: values_named(0, 1, 2, 3)}
    replay(
        TOPIC,
        chronik_topic,
        bootstrap=chronik_broker.bootstrap,
        table_root=str(tmp_path),
        end=ReplayBound(time=_datetime_at(5)),
    )
    found = values(chronik_broker, chronik_topic)
    assert found == {0: values_named(0, 1, 2, 3, 0), 1: values_named(1, 0, 1)}


def _timestamp_at(hours: int) -> int:
    return NOON_2024_05_01_MS + hours * HOUR_MS


def _datetime_at(hours: int) -> datetime:
    return datetime.fromtimestamp(_timestamp_at(hours) / 1000, UTC)


def test_impossible_replay_is_rejected_before_writing(
    tmp_path: Path, chronik_broker: Broker, chronik_topic: str
) -> None:
    create_table(tmp_path)
    root, bootstrap = str(tmp_path), chronik_broker.bootstrap
    with pytest.raises(ReplayRejectedError, match=r"topic nowhere does not exist: .*--create"):
        replay(TOPIC, "nowhere", bootstrap=bootstrap, table_root=root)
    with pytest.raises(ReplayRejectedError, match="partition 9"):
        replay(TOPIC, chronik_topic, bootstrap=bootstrap, table_root=root, start=ReplayBound(offsets={9: 0}))
    with pytest.raises(TableMissingError):
        replay("nothing", chronik_topic, bootstrap=bootstrap, table_root=root)
    assert values(chronik_broker, chronik_topic) == {}


def test_replay_creates_target_topic_if_requested(tmp_path: Path, chronik_broker: Broker, chronik_topic: str) -> None:
    create_table(tmp_path)
    made = f"{chronik_topic}-made"
    replay(TOPIC, made, bootstrap=chronik_broker.bootstrap, table_root=str(tmp_path), create=True)
    with chronik_broker.cluster() as cluster:
        assert len(cluster.partitions(made)) == 3
    assert values(chronik_broker, made) == {p: values_named(p, *range(40)) for p in range(3)}


def test_failed_replay_reports_remaining_ranges_that_complete_it(
    tmp_path: Path, chronik_broker: Broker, chronik_topic: str
) -> None:
    create_table(tmp_path)
    rounds = 0

    def fail_third_round(so_far: int, rest: object) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            chronik_broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")

    root, bootstrap = str(tmp_path), chronik_broker.bootstrap
    with pytest.raises(ReplayFailedError) as failed:
        replay(
            TOPIC, chronik_topic, bootstrap=bootstrap, table_root=root, offsets_per_round=10, progress=fail_third_round
        )
    assert "TOPIC_AUTHORIZATION_FAILED" in str(failed.value)
    assert "80 records written to" in str(failed.value)
    assert "--from-offset 0:20,1:30,2:30 --to-offset 0:40,1:40,2:40" in str(failed.value)
    rest = failed.value.rest
    starts = {partition: start for partition, (start, _) in rest.ranges.items()}
    ends = {partition: end for partition, (_, end) in rest.ranges.items()}
    replay(
        TOPIC,
        chronik_topic,
        bootstrap=bootstrap,
        table_root=root,
        start=ReplayBound(offsets=starts),
        end=ReplayBound(offsets=ends),
    )
    assert values(chronik_broker, chronik_topic) == {p: values_named(p, *range(40)) for p in range(3)}


# Decoded tables

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["a", "b", "A", "_offset", "x.y", "list"])


def without_nulls(value: Any) -> Any:
    """Remove null fields, which equal missing ones."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.slow
@settings(max_examples=sized(30, 1000), deadline=None)
@given(objects=st.lists(st.none() | st.dictionaries(NAMES, JSON, max_size=4), min_size=1, max_size=6))
def test_replay_of_decoded_table_restores_equal_values(
    tmp_path_factory: pytest.TempPathFactory, objects: list[dict[str, Any] | None]
) -> None:
    root = tmp_path_factory.mktemp("decoded")
    table = create_empty_table(root, TableKind.DECODED)
    encoded = [None if each is None else json.dumps(each).encode("utf-8", "surrogatepass") for each in objects]
    commit_rows(table, 0, build_record_columns(range(len(objects)), encoded))
    found = [value for rows in _rebuild_values(table) for value in rows]
    assert [value is None for value in found] == [each is None for each in objects]
    for value, each in zip(found, objects, strict=True):
        if value is not None:
            assert without_nulls(json.loads(value)) == without_nulls(each)


def _rebuild_values(table: TopicTable) -> list[list[bytes | None]]:
    end = table.next_offsets()[0]
    return [
        build_outgoing_rows(rows, INFERRED).column("value").to_pylist()
        for rows in read_ordered_rows(table.files(), 0, 0, end)
    ]


def test_replay_of_decoded_table_restores_keys_and_headers(
    tmp_path: Path, chronik_broker: Broker, chronik_topic: str
) -> None:
    table = create_empty_table(tmp_path, TableKind.DECODED)
    first = [b'{"id": 1, "who": {"name": "x"}, "note": {"of": null}}', None, b'{ "id":2.0, "list":[1, null] }']
    then = [b'{"id":"three","who":{"name":null},"new":1e3,"big":123456789012345678901234567890}', b"{}", b'{"id":null}']
    headers: list[Sequence[tuple[str, bytes | None]]] = [[("h", b"1")], (), ()]
    commit_rows(table, 0, build_record_columns(range(3), first, keys=[b"a", b"b", None], headers=headers))
    commit_rows(table, 0, build_record_columns(range(3, 6), then))
    done = replay(TOPIC, chronik_topic, bootstrap=chronik_broker.bootstrap, table_root=str(tmp_path))
    assert done.records == 6
    found = records_by_partition(chronik_broker, chronik_topic)[0]
    assert [each.key for each in found] == [b"a", b"b", None, *[b"key"] * 3]
    assert [each.headers for each in found] == [(("h", b"1"),), *[()] * 5]
    assert [each.timestamp for each in found] == [NOON_2024_05_01_MS + offset for offset in range(6)]
    assert found[1].value is None
    objects = [None if each.value is None else json.loads(each.value) for each in found]
    assert objects == [
        {"id": 1, "who": {"name": "x"}, "note": {"of": None}},
        None,
        {"id": 2.0, "list": [1, None]},
        {"id": "three", "who": {}, "new": 1000.0, "big": 123456789012345678901234567890},
        {},
        {},
    ]


# Windows

NUMBERS = st.integers(0, 50)
GROUPS = st.lists(st.builds(lambda low, more, size: RowGroup(low, low + more, 1 + size), NUMBERS, NUMBERS, NUMBERS))


@given(groups=GROUPS, start=st.integers(0, 60), length=st.integers(1, 60), bytes_max=st.integers(1, 30))
def test_replay_windows_cover_each_possible_row_once(
    groups: list[RowGroup], start: int, length: int, bytes_max: int
) -> None:
    found = list(split_into_windows(groups, start, start + length, bytes_max))
    covered = [offset for low, high in found for offset in range(low, high)]
    assert covered == sorted(set(covered))
    assert all(start <= offset < start + length for offset in covered)
    needed = {offset for low, high, _ in groups for offset in range(low, high + 1) if start <= offset < start + length}
    assert needed <= set(covered)


def test_replay_window_size_approaches_limit() -> None:
    groups = [RowGroup(low, low + 9, 10) for low in range(0, 100, 10)]
    assert list(split_into_windows(groups, 0, 100, 30)) == [(0, 30), (30, 60), (60, 90), (90, 100)]
    overlapping = [*groups, RowGroup(0, 99, 10)]
    assert list(split_into_windows(overlapping, 5, 95, 30)) == [(5, 20), (20, 40), (40, 60), (60, 80), (80, 95)]
