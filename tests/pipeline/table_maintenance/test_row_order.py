"""Tests of the order of rows in compacted files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chronik.errors import ConfigError
from chronik.pipeline.maintenance.compaction import compact_tables
from chronik.pipeline.table_maintenance.row_order import RowOrder
from chronik.testing import Broker
from tests.pipeline.landing.landed_topic import LandedTopic
from tests.pipeline.table_fixtures import JournalledTopic


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[LandedTopic]:
    with chronik_broker.cluster() as cluster:
        yield LandedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path)


def test_compaction_sorts_rows_of_all_files(landed: LandedTopic) -> None:
    for _ in range(3):
        landed.send(*(b'{"id": %d, "name": "n%d"}' % (number * 7 % 50, number) for number in range(50)), b"{}")
        landed.land()
    before = landed.rows()
    (result,) = [
        each for each in compact_tables(landed.root, order=RowOrder(("id", "name"))) if each.compacted.files_added
    ]
    assert result.compacted.files_added == 1
    (uri,) = landed.open().snapshot().file_uris
    table = pq.read_table(uri)
    pairs = list(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))
    assert pairs == sorted(pairs, key=lambda pair: (pair[0] is None, pair[0] or 0, pair[1] or ""))
    assert landed.rows() == before, "rows are the same, in another order"
    assert landed.open().next_offsets() == {0: 153}


def test_order_of_column_that_does_not_exist_is_rejected(landed: LandedTopic) -> None:
    landed.send(b'{"id": 1, "list": [1]}')
    landed.land()
    with pytest.raises(ConfigError, match="no column 'ids'; did you mean 'id'"):
        compact_tables(landed.root, order=RowOrder(("ids",)))
    with pytest.raises(ConfigError, match="column 'list' has no order"):
        compact_tables(landed.root, order=RowOrder(("list",)))
    with pytest.raises(ConfigError, match="a Z-order needs 2 to 4 columns, not 1"):
        compact_tables(landed.root, order=RowOrder(("id",), is_z_order=True))


def test_z_order_keeps_rows_together_that_are_close_in_any_column() -> None:
    random = np.random.default_rng(1)
    rows = pa.table({"x": random.integers(0, 1000, 8192), "y": random.integers(0, 1000, 8192), "n": range(8192)})
    ordered = RowOrder(("x", "y"), is_z_order=True).sort(rows)
    assert sorted(ordered["n"].to_pylist()) == list(range(8192))

    def mean_range(table: pa.Table, name: str) -> float:
        values = table[name].to_numpy().reshape(64, 128)
        return float((values.max(axis=1) - values.min(axis=1)).mean())

    for name in ("x", "y"):
        assert mean_range(ordered, name) < 0.25 * mean_range(rows, name)


def test_z_order_places_nulls_last() -> None:
    rows = pa.table({"x": pa.array([3, None, 1]), "y": pa.array(["b", None, "a"])})
    assert RowOrder(("x", "y"), is_z_order=True).sort(rows)["x"].to_pylist() == [1, 3, None]
