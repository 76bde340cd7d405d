"""Arrow messages in which tasks return the rows of a result."""

from __future__ import annotations

import pyarrow as pa

from chronik.pipeline.query.results import encode_batches, split_batch


def test_messages_have_all_rows_in_order_and_a_limited_size() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([bytes(1000)] * 100), pa.array(range(100))], ["bytes", "n"])
    parts = list(split_batch(batch, 10_000))
    assert all(part.nbytes <= 10_000 for part in parts)
    assert [n for part in parts for n in part["n"].to_pylist()] == list(range(100))
    large = pa.RecordBatch.from_arrays([pa.array([bytes(100)])], ["bytes"])
    assert list(split_batch(large, 10)) == [large], "a single row is not divided"
    messages = [bytes(each["message"][0].as_py()) for each in encode_batches(iter([batch, batch.slice(0, 0)]))]
    with pa.ipc.open_stream(messages[0]) as reader:
        assert reader.read_all().num_rows == 100
    assert len(messages) == 1
