"""A gRPC channel to a Spark Connect server on the loopback address.

PySpark sends a token without TLS only to the host name `localhost`. That name may have several addresses: gRPC tries
::1 first, so another process listening there would receive the token of the server on 127.0.0.1.
"""

from __future__ import annotations

from pyspark.sql.connect.client import DefaultChannelBuilder

from chronik.pipeline.spark.masters import LOOPBACK


class LoopbackChannelBuilder(DefaultChannelBuilder):  # type: ignore[misc]
    """A channel builder for `sc://127.0.0.1:PORT/…` URLs."""

    def __init__(self, url: str) -> None:
        super().__init__(url.replace(f"//{LOOPBACK}:", "//localhost:", 1))

    @property
    def endpoint(self) -> str:
        return f"ipv4:{LOOPBACK}:{self.url.port}"
