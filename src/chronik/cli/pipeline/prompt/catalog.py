"""The names that the SQL prompt completes: topics, their cold and hot halves, and their columns."""

from __future__ import annotations

import time
from typing import Final

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.pipeline import CLIENT_ID

CACHE_SECONDS: Final = 30.0
TIMEOUT_SECONDS: Final = 2.0
"""Request timeout; the user waits for the completion."""

HALVES: Final = ("", "_cold", "_hot")


class TableCatalog:
    def __init__(self, bootstrap: Bootstrap, table_root: str) -> None:
        self._bootstrap = bootstrap
        self._table_root = table_root
        self._topics: tuple[float, list[str]] = float("-inf"), []
        self._columns: dict[str, tuple[float, list[str]]] = {}

    def tables(self) -> list[str]:
        """Return the names of all tables, cached for a short time."""
        from chronik.pipeline.query.topic_snapshots import SnapshotReader
        from chronik.pipeline.tables.storage import absolute_root

        at, found = self._topics
        if time.monotonic() - at > CACHE_SECONDS:
            with ClusterClient(self._bootstrap, client_id=CLIENT_ID, timeout_s=TIMEOUT_SECONDS) as cluster:
                found = SnapshotReader(cluster, absolute_root(self._table_root)).list_topics()
            self._topics = time.monotonic(), found
        return [topic + half for topic in found if not topic.startswith("__") for half in HALVES]

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table, cached for a short time."""
        from chronik.pipeline.query.topic_snapshots import SnapshotReader
        from chronik.pipeline.tables.storage import absolute_root

        topic = table if table in self._topics[1] else table.removesuffix("_cold").removesuffix("_hot")
        at, found = self._columns.get(topic, (float("-inf"), []))
        if time.monotonic() - at > CACHE_SECONDS:
            with ClusterClient(self._bootstrap, client_id=CLIENT_ID, timeout_s=TIMEOUT_SECONDS) as cluster:
                snapshot = SnapshotReader(cluster, absolute_root(self._table_root)).take_snapshots([topic])[topic]
            found = list(snapshot.schema.names)
            self._columns[topic] = time.monotonic(), found
        return found
