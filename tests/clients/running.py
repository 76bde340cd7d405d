"""A client's driver as a running process, and what a test can ask of it."""

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

from .catalogue import CLIENTS, HERE, Client
from .drivers.wire import Received, Record

ANSWER_TIMEOUT_S = 120.0  # longer than any command's own limit: only a driver that hangs is caught by this one
CLOSE_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0
STATE_TIMEOUT_S = 60.0  # ten times what a rebalance takes on a busy machine
STATE_INTERVAL_S = 0.05
STDERR_SHOWN_BYTES = 4000


class CommandFailed(Exception):
    """The driver answered with an error; `name` is Kafka's name for it where the client tells it."""

    def __init__(self, client: str, command: str, name: str, message: str) -> None:
        super().__init__(f"{client} {command}: {name}: {message}")
        self.name = name


class DriverDied(Exception):
    """The driver ended or hangs: its client crashed, or never came back from the broker."""


def wait_for(what: str, state: Callable[[], Any], timeout_s: float = STATE_TIMEOUT_S) -> Any:
    """The first true value of `state`. Raises AssertionError, saying `what` did not come, at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not (value := state()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(STATE_INTERVAL_S)
    return value


def unique(name: str) -> str:
    """A name for a topic or a group that no earlier run used, so that tests can share a broker."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


class RunningClient:
    def __init__(self, client: Client, bootstrap: str) -> None:
        self.name = client.name
        self.client = client
        self._bootstrap = bootstrap
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            client.command,
            cwd=HERE,
            env=client.full_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands: IO[str] = self._process.stdin
        self._reader = threading.Thread(target=self._read_answers, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        self._last_id = 0
        self.capabilities: dict[str, Any] = self.call("capabilities")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def use(self, bootstrap: str) -> None:
        """From now on; what it has opened stays where it is."""
        self._bootstrap = bootstrap

    def call(self, command: str, **arguments: Any) -> Any:
        """The result of a command. Raises CommandFailed or DriverDied."""
        self._last_id += 1
        request = {"id": self._last_id, "command": command, "arguments": arguments}
        try:
            self._commands.write(json.dumps(request) + "\n")
            self._commands.flush()
            line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except (BrokenPipeError, queue.Empty) as failure:
            raise self._death(command) from failure
        if line is None:
            raise self._death(command)
        answer = json.loads(line)
        assert answer["id"] == self._last_id, f"{self.name} answered out of order"
        if "error" in answer:
            raise CommandFailed(self.name, command, answer["error"]["name"], answer["error"]["message"])
        return answer["result"]

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
    ) -> tuple[list[Received], str | None]:
        """What was read, and what went wrong, if anything. `isolation` None is the client's own default; `bootstrap`
        is another than that of all else."""
        arguments: dict[str, Any] = {"topics": topics, "group": group, "timeout_s": READ_TIMEOUT_S}
        if isolation is not None:
            arguments["isolation"] = isolation
        answer = self.call("consume", bootstrap=bootstrap or self._bootstrap, **arguments)
        return [Received.from_json(fields) for fields in answer["records"]], answer["problem"]

    def admin(self, command: str, **arguments: Any) -> Any:
        return self.call(command, bootstrap=self._bootstrap, **arguments)

    def join(
        self, group: str, topics: list[str], assignor: str | None = None, instance: str | None = None
    ) -> GroupMember:
        """A static member with an `instance`: its driver may end, and another take its place under that name."""
        name = unique("member")
        wanted = {"group": group, "topics": topics, "assignor": assignor, "instance": instance}
        self.call("join", member=name, bootstrap=self._bootstrap, **wanted)
        return GroupMember(self, name)

    def open_producer(self, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        """Returns when the broker has given it an epoch."""
        name = unique("producer")
        wanted = {"transactional_id": transactional_id, "timeout_ms": timeout_ms}
        self.call("open_producer", producer=name, bootstrap=self._bootstrap, **wanted)
        return TransactionalProducer(self, name)

    def crash(self) -> None:
        """It is gone without a word, with all its members and producers."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """The end of its input ends a driver; one that stays is killed."""
        with suppress(BrokenPipeError):  # it has crashed
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

    def _read_answers(self, output: IO[str]) -> None:
        for line in output:
            self._answers.put(line)
        self._answers.put(None)

    def _death(self, command: str) -> DriverDied:
        code = self._process.poll()
        state = "hangs" if code is None else f"ended with {code}"
        size = self._stderr.seek(0, 2)
        self._stderr.seek(max(0, size - STDERR_SHOWN_BYTES))
        said = self._stderr.read().decode(errors="replace")
        return DriverDied(f"the driver of {self.name} {state} at {command}; it said:\n{said}")


class GroupMember:
    """One member of a group, polling inside its client's driver."""

    def __init__(self, client: RunningClient, name: str) -> None:
        self._client = client
        self._name = name
        self.received: list[Received] = []
        self._rebalances = 0

    def __str__(self) -> str:
        return f"{self._name} of {self._client.name}"

    def assignment(self) -> set[tuple[str, int]]:
        state = self._client.call("member", member=self._name)
        self.received += [Received.from_json(fields) for fields in state["records"]]
        assert state["problem"] is None, f"{self}: {state['problem']}"
        self._rebalances = state["rebalances"]
        return {(topic, partition) for topic, partition in state["assignment"]}

    def rebalances(self) -> int:
        """How often it was given partitions until now."""
        self.assignment()
        return self._rebalances

    def seen(self) -> set[tuple[str, int, int]]:
        """Topic, partition and offset of all that was received until now."""
        self.assignment()
        return {(record.topic, record.partition, record.offset) for record in self.received}

    def commit(self, offsets: list[tuple[str, int, int, str]]) -> None:
        self._client.call("commit", member=self._name, offsets=offsets)

    def leave(self) -> None:
        self._client.call("leave", member=self._name)


class TransactionalProducer:
    """One producer of a transactional id, inside its client's driver. All raise CommandFailed."""

    def __init__(self, client: RunningClient, name: str) -> None:
        self._client = client
        self._name = name

    def begin(self) -> None:
        self._client.call("begin_transaction", producer=self._name)

    def send(self, topic: str, records: list[Record]) -> None:
        """Returns when all are acknowledged."""
        fields = [record.to_json() for record in records]
        self._client.call("send_in_transaction", producer=self._name, topic=topic, records=fields)

    def send_offsets(self, group: str, offsets: list[tuple[str, int, int, str]]) -> None:
        self._client.call("send_offsets", producer=self._name, group=group, offsets=offsets)

    def commit(self) -> None:
        self._client.call("commit_transaction", producer=self._name)

    def abort(self) -> None:
        self._client.call("abort_transaction", producer=self._name)

    def commit_many(self, topic: str, first: int, count: int) -> None:
        """So many transactions of one record each, whose value is its number, from `first` on."""
        self._client.call("commit_many", producer=self._name, topic=topic, first=first, count=count)

    def close(self) -> None:
        """What it has not ended stays as it is."""
        self._client.call("close_producer", producer=self._name)


class Clients:
    """The running clients, each started when it is first asked for."""

    def __init__(self, bootstrap: str, left_out: frozenset[str], known: Mapping[str, Client] = CLIENTS) -> None:
        self.bootstrap = bootstrap
        self._left_out = left_out
        self._known = known
        self._running: dict[str, RunningClient] = {}

    def missing(self, name: str) -> str | None:
        return f"{name}: left out of this run" if name in self._left_out else self._known[name].missing()

    def get(self, name: str) -> RunningClient:
        """Skips the test when the client is not here, with the reason."""
        if (reason := self.missing(name)) is not None:
            pytest.skip(reason)
        if name not in self._running:
            self._running[name] = self.another(name)
        return self._running[name]

    def another(self, name: str) -> RunningClient:
        """A process that is its caller's own, who is to close it."""
        return RunningClient(self._known[name], self.bootstrap)

    def all_present(self) -> list[RunningClient]:
        return [self.get(name) for name in self._known if self.missing(name) is None]

    def create_topic(self, name: str, partitions: int, replication_factor: int = 1) -> str:
        """Returns when the topic has leaders, so that no client meets it half-made."""
        self.create_topics([name], partitions, replication_factor)
        return name

    def create_topics(self, names: list[str], partitions: int, replication_factor: int = 1) -> None:
        admin = self.get("confluent")
        topics = {name: {"partitions": partitions, "replication_factor": replication_factor} for name in names}
        admin.admin("create_topics", topics=topics)
        wait_for("leaders of new topics", lambda: self._all_led(admin, names))

    def close(self) -> None:
        for client in self._running.values():
            client.close()

    @staticmethod
    def _all_led(admin: RunningClient, names: list[str]) -> bool:
        try:
            described = admin.admin("describe_topics", topics=names)
        except CommandFailed as failure:
            if failure.name != "UNKNOWN_TOPIC_OR_PARTITION":
                raise
            return False
        return all(partition["leader"] >= 0 for topic in described.values() for partition in topic)
