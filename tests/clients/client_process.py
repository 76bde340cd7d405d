"""A client driver as a running process, and the commands that tests send to it."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any

import pytest

from .client_catalog import CLIENTS, CLIENTS_DIRECTORY, ClientProgram
from .drivers.wire import ReceivedRecord, Record

RESPONSE_TIMEOUT_S = 120.0  # longer than the limit of any command, so that it only detects a driver that hangs
CLOSE_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0
STATE_TIMEOUT_S = 60.0  # ten times the duration of a rebalance on a busy machine
STATE_INTERVAL_S = 0.05
STDERR_SHOWN_BYTES = 4000


class CommandFailed(Exception):
    """The driver responded with an error; `name` is Kafka's error name if the client reports it."""

    def __init__(self, client: str, command: str, name: str, message: str) -> None:
        super().__init__(f"{client} {command}: {name}: {message}")
        self.name = name


class DriverDied(Exception):
    """The driver exited or hangs: its client crashed, or a call did not return."""


def wait_for(what: str, state: Callable[[], Any], timeout_s: float = STATE_TIMEOUT_S) -> Any:
    """Return the first true value of `state`. Raises AssertionError with `what` after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not (value := state()):
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {timeout_s} s waiting for: {what}")
        time.sleep(STATE_INTERVAL_S)
    return value


def unique_name(name: str) -> str:
    """Return a unique topic or group name, so that tests can share a broker."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


class ClientProcess:
    """A client driver process, controlled by JSON commands."""

    def __init__(self, client: ClientProgram, bootstrap: str) -> None:
        self.name = client.name
        self.client = client
        self._bootstrap = bootstrap
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - as long-lived as the process
        self._process = subprocess.Popen(
            client.command,
            cwd=CLIENTS_DIRECTORY,
            env=client.full_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self._responses: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands: IO[str] = self._process.stdin
        self._reader = threading.Thread(target=self._read_responses, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        self._last_id = 0
        self.capabilities: dict[str, Any] = self.call("capabilities")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def set_bootstrap(self, bootstrap: str) -> None:
        """Use another bootstrap server for subsequent commands; open consumers and producers are not affected."""
        self._bootstrap = bootstrap

    def call(self, command: str, **arguments: Any) -> Any:
        """Run a command and return its result. Raises CommandFailed or DriverDied."""
        self._last_id += 1
        request = {"id": self._last_id, "command": command, "arguments": arguments}
        try:
            self._commands.write(json.dumps(request) + "\n")
            self._commands.flush()
            line = self._responses.get(timeout=RESPONSE_TIMEOUT_S)
        except (BrokenPipeError, queue.Empty) as failure:
            raise self._driver_died(command) from failure
        if line is None:
            raise self._driver_died(command)
        response = json.loads(line)
        assert response["id"] == self._last_id, f"{self.name} responded out of order"
        if "error" in response:
            raise CommandFailed(self.name, command, response["error"]["name"], response["error"]["message"])
        return response["result"]

    def produce(self, topic: str, records: list[Record], codec: str = "none", idempotent: bool = False) -> None:
        fields = [record.to_json() for record in records]
        arguments = {"topic": topic, "codec": codec, "records": fields, "idempotent": idempotent}
        self.call("produce", bootstrap=self._bootstrap, **arguments)

    def consume(
        self,
        topics: dict[str, int],
        group: str | None,
        *,
        isolation: str | None = None,
        bootstrap: str | None = None,
    ) -> tuple[list[ReceivedRecord], str | None]:
        """Read records and return them with the error, if any.

        Args:
            topics: Number of records to read by topic.
            isolation: Isolation level; None for the client's default.
            bootstrap: Bootstrap server for this call only.
        """
        arguments: dict[str, Any] = {"topics": topics, "group": group, "timeout_s": READ_TIMEOUT_S}
        if isolation is not None:
            arguments["isolation"] = isolation
        response = self.call("consume", bootstrap=bootstrap or self._bootstrap, **arguments)
        return [ReceivedRecord.from_json(fields) for fields in response["records"]], response["problem"]

    def admin(self, command: str, **arguments: Any) -> Any:
        return self.call(command, bootstrap=self._bootstrap, **arguments)

    def join(
        self, group: str, topics: list[str], assignor: str | None = None, instance: str | None = None
    ) -> GroupMember:
        """Join a group. With an `instance` the member is static, and can be replaced by another process."""
        name = unique_name("member")
        arguments_json = {"group": group, "topics": topics, "assignor": assignor, "instance": instance}
        self.call("join", member=name, bootstrap=self._bootstrap, **arguments_json)
        return GroupMember(self, name)

    def open_producer(self, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        """Open a transactional producer and wait until its producer epoch is assigned."""
        name = unique_name("producer")
        arguments_json = {"transactional_id": transactional_id, "timeout_ms": timeout_ms}
        self.call("open_producer", producer=name, bootstrap=self._bootstrap, **arguments_json)
        return TransactionalProducer(self, name)

    def crash(self) -> None:
        """Kill the driver with all its members and producers."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close the driver's standard input, which ends it; kill it if it does not exit."""
        with suppress(BrokenPipeError):  # the driver has crashed
            self._commands.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def _read_responses(self, output: IO[str]) -> None:
        for line in output:
            self._responses.put(line)
        self._responses.put(None)

    def _driver_died(self, command: str) -> DriverDied:
        code = self._process.poll()
        state = "hangs" if code is None else f"exited with {code}"
        size = self._stderr.seek(0, 2)
        self._stderr.seek(max(0, size - STDERR_SHOWN_BYTES))
        stderr_text = self._stderr.read().decode(errors="replace")
        return DriverDied(f"the driver of {self.name} {state} in {command}; its stderr:\n{stderr_text}")


class GroupMember:
    """A member of a group that polls inside its client's driver."""

    def __init__(self, client: ClientProcess, name: str) -> None:
        self._client = client
        self._name = name
        self.received: list[ReceivedRecord] = []
        self._rebalances = 0

    def __str__(self) -> str:
        return f"{self._name} of {self._client.name}"

    def assignment(self) -> set[tuple[str, int]]:
        state = self._client.call("member", member=self._name)
        self.received += [ReceivedRecord.from_json(fields) for fields in state["records"]]
        assert state["problem"] is None, f"{self}: {state['problem']}"
        self._rebalances = state["rebalances"]
        return {(topic, partition) for topic, partition in state["assignment"]}

    def rebalances(self) -> int:
        """Return how often the member was assigned partitions so far."""
        self.assignment()
        return self._rebalances

    def received_offsets(self) -> set[tuple[str, int, int]]:
        """Return topic, partition and offset of all records received so far."""
        self.assignment()
        return {(record.topic, record.partition, record.offset) for record in self.received}

    def commit(self, offsets: list[tuple[str, int, int, str]]) -> None:
        self._client.call("commit", member=self._name, offsets=offsets)

    def leave(self) -> None:
        self._client.call("leave", member=self._name)


class TransactionalProducer:
    """A producer with a transactional id inside its client's driver. All methods raise CommandFailed."""

    def __init__(self, client: ClientProcess, name: str) -> None:
        self._client = client
        self._name = name

    def begin(self) -> None:
        self._client.call("begin_transaction", producer=self._name)

    def send(self, topic: str, records: list[Record]) -> None:
        """Send records and wait for their acknowledgement."""
        fields = [record.to_json() for record in records]
        self._client.call("send_in_transaction", producer=self._name, topic=topic, records=fields)

    def send_offsets(self, group: str, offsets: list[tuple[str, int, int, str]]) -> None:
        self._client.call("send_offsets", producer=self._name, group=group, offsets=offsets)

    def commit(self) -> None:
        self._client.call("commit_transaction", producer=self._name)

    def abort(self) -> None:
        self._client.call("abort_transaction", producer=self._name)

    def commit_many(self, topic: str, first: int, count: int) -> None:
        """Commit `count` transactions with one record each, whose values are numbers from `first` on."""
        self._client.call("commit_many", producer=self._name, topic=topic, first=first, count=count)

    def close(self) -> None:
        """Close the producer without completing an open transaction."""
        self._client.call("close_producer", producer=self._name)


class ClientPool:
    """The running clients, each started on first use."""

    def __init__(self, bootstrap: str, left_out: frozenset[str], known: Mapping[str, ClientProgram] = CLIENTS) -> None:
        self.bootstrap = bootstrap
        self._left_out = left_out
        self._known = known
        self._running: dict[str, ClientProcess] = {}

    def missing_reason(self, name: str) -> str | None:
        return f"{name}: left out of this run" if name in self._left_out else self._known[name].missing_reason()

    def get(self, name: str) -> ClientProcess:
        """Return a running client, or skip the test with the reason if the client is unavailable."""
        if (reason := self.missing_reason(name)) is not None:
            pytest.skip(reason)
        if name not in self._running:
            self._running[name] = self.start_another(name)
        return self._running[name]

    def start_another(self, name: str) -> ClientProcess:
        """Start another process of the client, which the caller must close."""
        return ClientProcess(self._known[name], self.bootstrap)

    def get_all(self) -> list[ClientProcess]:
        return [self.get(name) for name in self._known if self.missing_reason(name) is None]

    def create_topic(self, name: str, partitions: int, replication_factor: int = 1) -> str:
        """Create a topic and wait until its partitions have leaders."""
        self.create_topics([name], partitions, replication_factor)
        return name

    def create_topics(self, names: list[str], partitions: int, replication_factor: int = 1) -> None:
        admin = self.get("confluent")
        topics = {name: {"partitions": partitions, "replication_factor": replication_factor} for name in names}
        admin.admin("create_topics", topics=topics)
        wait_for("leaders of new topics", lambda: self._have_leaders(admin, names))

    def close(self) -> None:
        for client in self._running.values():
            client.close()

    @staticmethod
    def _have_leaders(admin: ClientProcess, names: list[str]) -> bool:
        try:
            described = admin.admin("describe_topics", topics=names)
        except CommandFailed as failure:
            if failure.name != "UNKNOWN_TOPIC_OR_PARTITION":
                raise
            return False
        return all(partition["leader"] >= 0 for topic in described.values() for partition in topic)
