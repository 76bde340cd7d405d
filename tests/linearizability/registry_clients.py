"""HTTP clients of schema registries that record every request with its time and outcome."""

from __future__ import annotations

import http.client
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count, product
from typing import Any, NamedTuple

from chronik.config import Address
from tests.linearizability.subjects import (
    DeleteLatest,
    DeleteSubject,
    DestroySubject,
    GetLatest,
    ListVersions,
    LookUp,
    Register,
    SubjectAction,
    SubjectAnswer,
    SubjectOperation,
    SubjectOutput,
    SubjectRead,
)

SHORT_TIMEOUT_SECONDS = 1.0
"""A timeout shorter than any fault: these clients abandon requests."""

LONG_TIMEOUT_SECONDS = 40.0
"""A timeout longer than a node tries: these clients receive the node's error."""

UNREACHABLE_SECONDS = 0.05
"""Delay before the next attempt when a node refuses connections."""

CLIENTS_PER_TIMEOUT = 2
SUBJECTS_AT_A_TIME = 4
"""Few subjects, so that clients conflict."""

SHARED_CONTENTS = 6
"""Contents that several clients register under several subjects."""

CONTENTS_PER_CLIENT_MAX = 1_000_000
KEPT_PREFIX = "kept-"
"""The prefix of subjects from which nothing is deleted."""

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
ANSWERS = {
    40401: SubjectAnswer.NO_SUBJECT,
    40402: SubjectAnswer.NO_VERSION,
    40403: SubjectAnswer.NO_SCHEMA,
    40404: SubjectAnswer.SOFT_DELETED,
    40405: SubjectAnswer.NOT_SOFT_DELETED,
}
UNKNOWN_ERRORS = (50001, 50002)
"""Error codes after which the outcome of a change is unknown."""

READS, WRITES, ID_READS = "reads", "writes", "reads by id"
UNKNOWN_WRITES, UNANSWERED_READS, UNREACHABLE = "unknown writes", "unanswered reads", "unreachable"

WEIGHTS: dict[type[SubjectAction], int] = {
    Register: 40,
    LookUp: 20,
    GetLatest: 15,
    ListVersions: 10,
    DeleteLatest: 6,
    DeleteSubject: 4,
    DestroySubject: 5,
}
READ_WEIGHTS = {kind: weight for kind, weight in WEIGHTS.items() if kind in (LookUp, GetLatest, ListVersions)}
KEPT_WEIGHTS = READ_WEIGHTS | {Register: WEIGHTS[Register]}


class Registration(NamedTuple):
    """An acknowledged registration."""

    subject: str
    version: int
    id: int
    content: int


class UnknownOutcome(Exception):
    """The request may have been executed or not."""


def build_schema(content: int) -> str:
    """Return the schema that a content stands for, in canonical form. All of them are compatible."""
    fields = [{"name": f"f{content}", "type": "int", "default": 0}]
    return json.dumps({"type": "record", "name": "Order", "fields": fields}, separators=(",", ":"))


def parse_content(schema: str) -> int:
    """Return the content for which a schema stands."""
    found = re.search(r'"f(\d+)"', schema)
    assert found is not None, schema
    assert schema == build_schema(int(found[1]))
    return int(found[1])


class RegistryConnection:
    """A connection to the registry of a node, which is opened again after errors."""

    def __init__(self, node: Address, timeout_s: float) -> None:
        self._node = node
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the JSON of the response.

        Raises:
            ConnectionRefusedError: The request was not sent.
            UnknownOutcome: There was no response, or it says that the outcome is unknown.
        """
        data = None if body is None else json.dumps(body).encode()
        if self._connection is None:
            connection = http.client.HTTPConnection(self._node.host, self._node.port, timeout=self._timeout_s)
            try:
                connection.connect()
            except ConnectionRefusedError:
                raise
            except OSError as error:
                raise UnknownOutcome(str(error)) from error
            self._connection = connection
        try:
            headers = {} if data is None else {"content-type": CONTENT_TYPE}
            self._connection.request(method, f"/registry{path}", data, headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise UnknownOutcome(repr(error)) from error
        if response.status in (429, 503):
            raise UnknownOutcome(f"{response.status} {content!r}")
        found = json.loads(content)
        if isinstance(found, dict) and found.get("error_code") in UNKNOWN_ERRORS:
            raise UnknownOutcome(found["message"])
        return found


class SubjectClient:
    """A client of one node, on one thread, that appends its operations to a shared history."""

    def __init__(
        self,
        number: int,
        node: Address,
        history: list[SubjectOperation],
        registrations: list[Registration],
        timeout_s: float = SHORT_TIMEOUT_SECONDS,
    ) -> None:
        self._number = number
        self._history = history
        self._registrations = registrations
        self._connection = RegistryConnection(node, timeout_s)
        self._contents = count(number * CONTENTS_PER_CLIENT_MAX)
        self.outcomes: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<client {self._number}: {dict(self.outcomes)}>"

    def close(self) -> None:
        self._connection.close()

    def choose_content(self, chance: random.Random) -> int:
        """Return a content, usually one that other clients use as well."""
        return chance.randrange(SHARED_CONTENTS) if chance.random() < 0.8 else next(self._contents)

    def perform(self, subject: str, action: SubjectAction) -> SubjectOutput | None:
        """Execute an operation. Return None if its outcome is unknown or it definitely had no effect."""
        called_ns = time.monotonic_ns()
        try:
            output = self._exchange(subject, action)
        except ConnectionRefusedError:
            self.outcomes[UNREACHABLE] += 1
        except UnknownOutcome:
            if isinstance(action, SubjectRead):
                self.outcomes[UNANSWERED_READS] += 1
            else:
                self.outcomes[UNKNOWN_WRITES] += 1
                self._history.append(SubjectOperation(self._number, subject, action, called_ns))
        else:
            returned_ns = time.monotonic_ns()
            self._history.append(SubjectOperation(self._number, subject, action, called_ns, returned_ns, output))
            self.outcomes[READS if isinstance(action, SubjectRead) else WRITES] += 1
            return output
        return None

    def read_by_id(self, known: Registration) -> None:
        """Check that an acknowledged id has its schema, unless it may have been deleted permanently."""
        try:
            found = self._connection.send("GET", f"/schemas/ids/{known.id}")
        except ConnectionRefusedError:
            self.outcomes[UNREACHABLE] += 1
        except UnknownOutcome:
            self.outcomes[UNANSWERED_READS] += 1
        else:
            self.outcomes[ID_READS] += 1
            if "schema" in found:
                assert parse_content(found["schema"]) == known.content, known
            else:
                assert not known.subject.startswith(KEPT_PREFIX), (known, found)

    def _exchange(self, subject: str, action: SubjectAction) -> SubjectOutput:
        send, path = self._connection.send, f"/subjects/{subject}"
        match action:
            case Register(content):
                found = send("POST", f"{path}/versions", {"schema": build_schema(content)})
                if "id" in found:
                    self._registrations.append(Registration(subject, found["version"], found["id"], content))
                    return int(found["version"])
            case LookUp(content):
                found = send("POST", path, {"schema": build_schema(content)})
                if "id" in found:
                    self._registrations.append(Registration(subject, found["version"], found["id"], content))
                    return int(found["version"])
            case GetLatest():
                found = send("GET", f"{path}/versions/latest")
                if "id" in found:
                    content = parse_content(found["schema"])
                    self._registrations.append(Registration(subject, found["version"], found["id"], content))
                    return found["version"], content
            case ListVersions():
                found = send("GET", f"{path}/versions")
            case DeleteLatest():
                found = send("DELETE", f"{path}/versions/latest")
            case DeleteSubject():
                found = send("DELETE", path)
            case DestroySubject():
                found = send("DELETE", f"{path}?permanent=true")
        if isinstance(found, dict):
            assert found.get("error_code") in ANSWERS, (subject, action, found)
            return ANSWERS[found["error_code"]]
        return found if isinstance(found, int) else tuple(found)


class SubjectRotation:
    """The subjects that clients use.

    Once the outcome of a write is unknown, clients only read the subject, and write to a new one: the time that the
    checker takes grows exponentially with the number of unknown writes to a subject.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: list[str] = []
        self._read: list[str] = []
        self._numbers = count(1)
        self.replace_all()

    def replace_all(self) -> None:
        """Write to new subjects, and only read the others."""
        with self._lock:
            for position in range(SUBJECTS_AT_A_TIME):
                self._replace(position)

    def retire(self, subject: str) -> None:
        """Stop writing to a subject."""
        with self._lock:
            if subject in self._written:
                self._replace(self._written.index(subject))

    def choose(self, chance: random.Random) -> tuple[str, bool]:
        """Return a subject, and whether it may be changed."""
        with self._lock:
            if self._read and chance.random() < 0.15:
                return chance.choice(self._read), False
            return chance.choice(self._written), True

    def _replace(self, position: int) -> None:
        name = f"{KEPT_PREFIX if position == 0 else ''}subject-{next(self._numbers)}"
        if position < len(self._written):
            self._read = [self._written[position], *self._read[: SUBJECTS_AT_A_TIME - 1]]
            self._written[position] = name
        else:
            self._written.append(name)


class RegistryLoad:
    """Clients of each node, with short and long timeouts, that use the same subjects until `stop`."""

    def __init__(self, nodes: Sequence[Address], seed: int) -> None:
        self.history: list[SubjectOperation] = []
        self.registrations: list[Registration] = []
        self.subjects = SubjectRotation()
        self._ending = threading.Event()
        self._failures: list[BaseException] = []
        timeouts = (SHORT_TIMEOUT_SECONDS, LONG_TIMEOUT_SECONDS) * CLIENTS_PER_TIMEOUT
        self.clients = [
            SubjectClient(number, node, self.history, self.registrations, timeout_s)
            for number, (node, timeout_s) in enumerate(product(nodes, timeouts), 1)
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(client, random.Random(f"{seed} {number}")))
            for number, client in enumerate(self.clients)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the clients and raise the first error, if any."""
        self._ending.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self.raise_failure()

    def raise_failure(self) -> None:
        if self._failures:
            raise self._failures[0]

    def outcomes(self) -> Counter[str]:
        return sum((client.outcomes for client in self.clients), Counter())

    def answered(self) -> int:
        """Return the number of requests with a known outcome."""
        outcomes = self.outcomes()
        return outcomes[READS] + outcomes[WRITES] + outcomes[ID_READS]

    def unanswered(self) -> int:
        outcomes = self.outcomes()
        return outcomes[UNKNOWN_WRITES] + outcomes[UNANSWERED_READS] + outcomes[UNREACHABLE]

    def _run(self, client: SubjectClient, chance: random.Random) -> None:
        try:
            while not self._ending.is_set():
                before = client.outcomes[UNREACHABLE], client.outcomes[UNKNOWN_WRITES]
                if self.registrations and chance.random() < 0.1:
                    client.read_by_id(chance.choice(self.registrations))
                else:
                    subject, is_written = self.subjects.choose(chance)
                    client.perform(subject, _choose_action(client, subject, chance, is_written=is_written))
                    if client.outcomes[UNKNOWN_WRITES] > before[1]:
                        self.subjects.retire(subject)
                if client.outcomes[UNREACHABLE] > before[0]:
                    self._ending.wait(UNREACHABLE_SECONDS)
        except BaseException as failure:  # raised again by stop
            self._failures.append(failure)
        finally:
            client.close()


def _choose_action(client: SubjectClient, subject: str, chance: random.Random, *, is_written: bool) -> SubjectAction:
    weights = READ_WEIGHTS if not is_written else KEPT_WEIGHTS if subject.startswith(KEPT_PREFIX) else WEIGHTS
    (kind,) = chance.choices(list(weights), list(weights.values()))
    if issubclass(kind, Register | LookUp):
        return kind(client.choose_content(chance))
    return kind()
