"""SQL queries that run continuously during a landing stress test and must see every offset exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from chronik.errors import ChronikError

JOIN_SECONDS_MAX = 600.0
FAILURE_PAUSE_SECONDS = 0.5
WRONG_SHOWN = 5


class ContinuousQueries:
    """A thread that queries a topic, landed rows and live tail, at least a given number of times."""

    def __init__(
        self,
        bootstrap: str,
        table_root: str,
        topic: str,
        count: int,
        storage_options: Mapping[str, str] | None,
        count_acknowledged: Callable[[], int],
    ) -> None:
        """Prepare queries. `count_acknowledged` returns the number of records that a query must see."""
        self._location = bootstrap, table_root
        self._statement = (
            f"SELECT _partition, count(*), count(DISTINCT _offset), min(_offset), max(_offset) FROM `{topic}`"
            " GROUP BY _partition"
        )
        self._count, self._storage_options = count, storage_options
        self._count_acknowledged = count_acknowledged
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queries", daemon=True)
        self.completed = self.failed = 0
        self.wrong: list[str] = []

    def __enter__(self) -> ContinuousQueries:
        if self._count:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopping.set()
        if self._count:
            self._thread.join(JOIN_SECONDS_MAX)

    def wait_for_completion(self) -> None:
        """Wait until the number of queries has been reached."""
        while self._thread.is_alive() and self.completed < self._count:
            self._thread.join(0.1)
        assert self.completed >= self._count, f"only {self.completed} of {self._count} queries completed"

    def _run(self) -> None:
        from chronik.pipeline.spark.runtime import session

        with session("local[1]", **{"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "512m"}) as spark:
            spark.sparkContext.setLogLevel("FATAL")  # queries fail while brokers or the store are down
            while not self._is_stopping.is_set():
                self._query(spark)

    def _query(self, spark: Any) -> None:
        """Run one query, and check that it returns every acknowledged offset once."""
        from chronik.pipeline.query.sql import query

        acknowledged = self._count_acknowledged()
        if not acknowledged:
            self._is_stopping.wait(FAILURE_PAUSE_SECONDS)
            return
        try:
            rows = query(spark, self._statement, *self._location, storage_options=self._storage_options).collect()
        except (ChronikError, PySparkException, Py4JError, OSError):
            self.failed += 1
            self._is_stopping.wait(FAILURE_PAUSE_SECONDS)
            return
        wrong = [tuple(row) for row in rows if not (row[1] == row[2] == row[4] + 1 and row[3] == 0)]
        if sum(row[1] for row in rows) < acknowledged:
            wrong.append((f"fewer than {acknowledged} rows", *map(tuple, rows)))
        if wrong and len(self.wrong) < WRONG_SHOWN:
            self.wrong.append(f"query {self.completed + 1} (partition, rows, offsets, lowest, highest): {wrong}")
        self.completed += 1
