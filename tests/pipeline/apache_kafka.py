"""An Apache Kafka broker for tests, from `bench.apache_kafka`."""

from __future__ import annotations

from bench.apache_kafka import SETTINGS, ApacheKafka

__all__ = ["SETTINGS", "ApacheKafka"]
