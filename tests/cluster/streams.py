"""A Kafka Streams application, built by `tools/clients/setup`, and its results."""

from __future__ import annotations

import subprocess
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.client_catalog import JVM_OPTIONS, TOOLS

LINES, COUNTS = "lines", "counts"
APPLICATION = "word-count"
PARTITIONS = 3

_LIBRARY = TOOLS / "streams" / "lib"


def require_streams() -> None:
    missing_note = TOOLS / "missing" / "streams"
    if missing_note.exists():
        pytest.skip(f"streams: {missing_note.read_text().strip()}")
    if not (_LIBRARY / "word-count-1.jar").exists():
        pytest.skip("streams: not set up; run tools/clients/setup")


class StreamsApplication:
    """A process of the application. `keep_up` restarts it when it has exited."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._arguments = [bootstrap, APPLICATION, LINES, COUNTS, str(folder / "state")]
        self._log = (folder / "streams.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self.restarts = 0

    def __enter__(self) -> StreamsApplication:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    def start(self) -> None:
        command = ["java", *JVM_OPTIONS, "-cp", f"{_LIBRARY}/*", "chronik.streams.WordCount", *self._arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart_if_exited(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            self.restarts += 1
            self.start()


class WordCounts:
    """The committed counts of each word, in order."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "never-joined",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(COUNTS, partition, 0) for partition in range(PARTITIONS)])
        self.by_word: dict[str, list[int]] = defaultdict(list)

    @property
    def words(self) -> int:
        return sum(map(len, self.by_word.values()))

    def poll(self, seconds: float) -> None:
        for message in self._consumer.consume(1000, timeout=seconds):
            if message.error() is None:
                self.by_word[message.key().decode()].append(int(message.value()))

    def check(self, expected: Counter[str]) -> None:
        """Check that each word was counted from one upwards, without gaps and duplicates."""
        for word, counts in self.by_word.items():
            assert counts == list(range(1, len(counts) + 1)), f"{word} was counted {counts}"
            assert len(counts) <= expected[word], f"{word} was counted {len(counts)} times of {expected[word]}"

    def wait_for(self, words: int, application: StreamsApplication, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.words < words:
            application.restart_if_exited()
            assert time.monotonic() < deadline, f"{self.words} of {words} words are counted"
            self.poll(0.5)

    def close(self) -> None:
        self._consumer.close()
