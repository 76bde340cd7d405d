"""A way to a Spark Connect server of this machine, by its address.

PySpark sends a token without TLS to the name `localhost` alone. A name may be several addresses: gRPC tries ::1 first,
and whoever listens there would be given the token of a server on 127.0.0.1.
"""

from __future__ import annotations

from pyspark.sql.connect.client import DefaultChannelBuilder

from chronik.pipeline.spark.masters import LOOPBACK


class LoopbackChannelBuilder(DefaultChannelBuilder):  # type: ignore[misc]
    """For `sc://127.0.0.1:PORT/…`."""

    def __init__(self, url: str) -> None:
        super().__init__(url.replace(f"//{LOOPBACK}:", "//localhost:", 1))

    @property
    def endpoint(self) -> str:
        return f"ipv4:{LOOPBACK}:{self.url.port}"
