"""Drivers that stand by for each other: the election, and takeovers after kills and pauses of real processes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from chronik.errors import ConfigError
from chronik.pipeline.landing.election import ACTIVE, STANDBY, DriverMember, assign_roles, describe_selection
from chronik.pipeline.landing.runner import run
from chronik.pipeline.tables.storage import table_uri
from chronik.testing import Broker
from tests.pipeline.landing_stress_tools import JournalingProducer, LandedTable, LandingDriver, find_differences
from tests.run_size import IS_LONG_RUN, sized

TOPIC, PARTITIONS = "orders", 2
KILLS = sized(1, 20)
PAUSES = sized(1, 2)
RECORDS_PER_FAULT = sized(500, 5_000)
DEADLINE_SECONDS = 300.0
POLL_SECONDS = 0.05


def encode(selection: str, *, is_active: bool = False, started_ms: int = 0) -> bytes:
    return msgspec.json.encode(DriverMember(selection, is_active, started_ms))


def test_active_driver_keeps_its_role_when_members_join() -> None:
    members = {"a": encode("x", started_ms=1), "b": encode("x", is_active=True, started_ms=2), "c": encode("x")}
    assert assign_roles(members) == {"a": STANDBY, "b": ACTIVE, "c": STANDBY}


def test_oldest_driver_takes_over() -> None:
    members = {"a": encode("x", started_ms=5), "b": encode("x", started_ms=3), "c": encode("x", started_ms=4)}
    assert assign_roles(members) == {"a": STANDBY, "b": ACTIVE, "c": STANDBY}


def test_each_selection_has_an_active_driver() -> None:
    first, second = describe_selection("/tables", ["b", "a"]), describe_selection("/tables", None)
    assert first == describe_selection("/tables", ["a", "b"]) != second
    members = {"a": encode(first), "b": encode(second), "c": encode(first), "d": b"not a driver"}
    assert assign_roles(members) == {"a": ACTIVE, "b": ACTIVE, "c": STANDBY, "d": STANDBY}


def test_run_with_once_does_not_stand_by() -> None:
    with pytest.raises(ConfigError, match="does not stand by"):
        run("127.0.0.1:1", "tables", ["orders"], once=True, standby=True)


class StandbyDriver(LandingDriver):
    """A driver process with `--standby`, and the role that it has printed last."""

    def __init__(self, broker: Broker, root: str, log: Path) -> None:
        arguments = ["-b", broker.bootstrap, "--table-root", root, "--topics", TOPIC, "--interval", "0.2"]
        master = ["--master", "local[1]"] if IS_LONG_RUN else []
        super().__init__([*arguments, *master, "--standby", "--json"], {}, log)
        self._log_path = log

    @property
    def role(self) -> str | None:
        """The last role of the current process."""
        lines = self._log_path.read_text(errors="replace").splitlines() if self._log_path.exists() else []
        roles = [json.loads(line) for line in lines if line.startswith('{"role"')]
        return next((each["role"] for each in reversed(roles) if each["pid"] == self.pid), None)


class StandbyPair:
    """Two drivers, a producer with a journal, and the table."""

    def __init__(self, broker: Broker, root: str, producer: JournalingProducer, drivers: list[StandbyDriver]) -> None:
        self.drivers, self.producer = drivers, producer
        self.table = LandedTable(table_uri(root, TOPIC))
        self.sent = 0

    def send(self, count: int) -> None:
        self.sent += count
        self.producer.allow_up_to(self.sent)

    def wait(self, done: Callable[[], bool], condition: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not done():
            tails = "\n".join(each.log_tail() for each in self.drivers)
            assert time.monotonic() < deadline, f"timed out before {condition}\n{tails}"
            time.sleep(POLL_SECONDS)

    def wait_for_rows(self, rows: int) -> None:
        self.wait(lambda: self.table.count_landed_rows() >= rows, f"{rows} rows")

    def wait_for_roles(self) -> tuple[StandbyDriver, StandbyDriver]:
        """Wait until one driver is active and the other on standby; return them in this order."""
        self.wait(lambda: sorted(str(each.role) for each in self.drivers) == ["active", "standby"], "an election")
        first, second = self.drivers
        return (first, second) if first.role == "active" else (second, first)

    def fail_over(self, fault: Callable[[StandbyDriver], None]) -> float:
        """Fail the active driver while it lands records, and return the seconds until the other one lands some."""
        active, standby = self.wait_for_roles()
        rows = self.table.count_landed_rows()
        self.send(RECORDS_PER_FAULT)
        self.wait_for_rows(rows + 1)
        fault(active)
        failed_at = time.monotonic()
        reached = self.table.count_landed_rows()  # a commit that was in progress does not show a takeover
        self.send(RECORDS_PER_FAULT)
        self.wait_for_rows(max(reached + 1, self.sent - RECORDS_PER_FAULT + 1))
        seconds = time.monotonic() - failed_at
        self.wait(lambda: standby.role == "active", "the standby driver is active")
        return seconds


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[StandbyPair]:
    records = 2 * RECORDS_PER_FAULT * (KILLS + PAUSES)
    root = str(tmp_path / "tables")
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(tmp_path / "broker"))  # other tests have topics of this name, too
        broker.create_topic(TOPIC, PARTITIONS)
        producer = stack.enter_context(JournalingProducer(broker.bootstrap, TOPIC, PARTITIONS, records))
        drivers = [
            stack.enter_context(StandbyDriver(broker, root, tmp_path / f"driver{number}.log")) for number in range(2)
        ]
        yield StandbyPair(broker, root, producer, drivers)


def test_standby_takes_over_after_kills_and_pauses(
    pair: StandbyPair, record_property: Callable[[str, object], None]
) -> None:
    takeovers = []
    for _ in range(KILLS):
        takeovers.append(pair.fail_over(lambda driver: driver.kill()))
        next(each for each in pair.drivers if not each.is_running).start()
    for _ in range(PAUSES):
        paused: list[StandbyDriver] = []

        def pause(driver: StandbyDriver, paused: list[StandbyDriver] = paused) -> None:
            paused.append(driver)
            os.killpg(driver.pid, signal.SIGSTOP)

        takeovers.append(pair.fail_over(pause))
        os.killpg(paused[0].pid, signal.SIGCONT)
        pair.wait(lambda paused=paused: paused[0].role == "standby", "the resumed driver stands by")  # type: ignore[misc]
    pair.wait_for_rows(pair.sent)
    summary = f"takeovers after {', '.join(f'{seconds:.1f}' for seconds in takeovers)} s"
    print(summary)
    record_property("summary", summary)
    assert not find_differences(pair.producer.journal(), pair.table.read_positions())
