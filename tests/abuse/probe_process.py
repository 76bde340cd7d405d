"""The probe process that runs alongside an attack, and its results."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

from tests.abuse import probe
from tests.abuse.attack import AttackTarget, ProbeOptions
from tests.abuse.authentication.attacked_listener import attacked_address
from tests.abuse.budget import Latencies, percentile

REPOSITORY: Final = Path(__file__).parents[2]
START_SECONDS_MAX: Final = 60.0


class ProbeRequest(NamedTuple):
    """One request of the probe."""

    kind: str
    began: float
    ended: float
    details: dict[str, Any]

    @property
    def ms(self) -> float:
        return (self.ended - self.began) * 1000

    @property
    def corrected_ms(self) -> float:
        """The latency without the time in which the node or the probe waited for a CPU core."""
        return self.ms - float(self.details.get("waited", 0.0)) * 1000


class ProbeProcess:
    """A context manager that runs the probe process."""

    def __init__(self, target: AttackTarget, directory: Path, options: ProbeOptions) -> None:
        self._path = directory / "trips.jsonl"
        victim_first = sorted(target.nodes, key=lambda node: node is not target.victim)
        nodes = [f"{attacked_address(node).port}={node.pid}" for node in victim_first]
        bootstrap = ",".join(str(attacked_address(node)) for node in target.nodes)
        self._command = [sys.executable, "-m", "tests.abuse.probe", bootstrap, target.probe_topic, *nodes]
        if target.attacked_listener is not None:
            self._command += ["--settings", str(target.attacked_listener.settings_file)]
        self._command += ["--acks", str(options.acks)]
        if options.fetches:
            self._command += ["--fetches"]
        if options.http:
            self._command += ["--http", str(target.http)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ProbeProcess:
        with self._path.open("wb") as trips:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=trips, cwd=REPOSITORY, process_group=0
            )
        self._await_first_record()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(probe.REQUEST_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _await_first_record(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not any(trip.kind == probe.PRODUCE for trip in self.requests()):
            if time.monotonic() > deadline:
                raise AssertionError("the first record of the probe was not acknowledged in time")
            time.sleep(probe.PING_INTERVAL_SECONDS)

    def requests(self) -> list[ProbeRequest]:
        lines = self._path.read_text().splitlines(keepends=True)
        results = [json.loads(line) for line in lines if line.endswith("\n")]
        return [ProbeRequest(each.pop("kind"), each.pop("began"), each.pop("ended"), each) for each in results]


class ProbeResults(NamedTuple):
    """The requests of the probe that overlap a time interval."""

    trips: list[ProbeRequest]

    @classmethod
    def between(cls, trips: list[ProbeRequest], began: float, ended: float) -> ProbeResults:
        return cls([trip for trip in trips if trip.ended > began and trip.began < ended])

    def of_kind(self, kind: str) -> list[ProbeRequest]:
        return [trip for trip in self.trips if trip.kind == kind]

    def p99_ms(self, kind: str = probe.PRODUCE) -> float:
        return percentile([trip.corrected_ms for trip in self.of_kind(kind)], 0.99)

    def p99_raw_ms(self, kind: str = probe.PRODUCE) -> float:
        return percentile([trip.ms for trip in self.of_kind(kind)], 0.99)

    def latencies(self, kind: str) -> Latencies:
        trips = self.of_kind(kind)
        return Latencies(
            kind,
            len(trips),
            self.p99_ms(kind),
            max((trip.corrected_ms for trip in trips), default=0.0),
            self.p99_raw_ms(kind),
            max((trip.ms for trip in trips), default=0.0),
        )

    def longest_ms(self) -> float:
        return max((trip.ms for trip in self.of_kind(probe.PRODUCE)), default=0.0)

    def blocked_ms(self) -> float:
        return max((trip.corrected_ms for trip in self.of_kind(probe.PING)), default=0.0)

    def blocked_raw_ms(self) -> float:
        return max((trip.ms for trip in self.of_kind(probe.PING)), default=0.0)

    def losses(self, excused_ports: Collection[int] = ()) -> list[str]:
        lost = [trip.details for trip in self.of_kind(probe.LOST) if trip.details.get("port") not in excused_ports]
        return [str(each["why"]) for each in lost]
