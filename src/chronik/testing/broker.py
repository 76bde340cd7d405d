"""A broker for tests: a real process on a free port that can be killed, paused and made to fail."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self, overload
from urllib.parse import urlsplit

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.consumer import read_all
from chronik.client.records import ConsumedRecord
from chronik.client.transactions import init_transactional_id
from chronik.config import load_config
from chronik.listeners import LISTENERS
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode
from chronik.testing.broker_process import PEER_PROXIES_KEY, RECORDS_REQUESTS_KEY
from chronik.testing.control import BrokerFailed, ControlChannel
from chronik.testing.fork_server import BrokerProcess, ForkedProcess, fork_broker
from chronik.testing.seen import SeenRequest

if TYPE_CHECKING:
    from chronik.testing.decoded import DecodedRecord

HOST = "127.0.0.1"
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
LOG_LINES_IN_ERRORS = 20

API_NAMES = frozenset(api.name for api in APIS.values())


class Broker:
    """A standalone node in its own process. Keyword arguments are config keys, such as `flush="os"`.

    Kafka's broker configs are in `broker`, such as `broker={"num.partitions": 3}`.

        with Broker() as broker:
            Producer({"bootstrap.servers": broker.bootstrap})

    Data and log are in `folder`, or in a temporary directory that is removed with the broker.
    """

    def __init__(self, folder: Path | None = None, **config: Any) -> None:
        """Create a broker without starting it.

        Raises:
            ConfigError: The config is invalid.
        """
        load_config(None, {}, **config)
        self._config = config
        self._temporary: weakref.finalize[[str, bool], Broker] | None = None
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="chronik-"))
            self._temporary = weakref.finalize(self, shutil.rmtree, str(folder), True)
        self._folder = folder
        self._log_path = self._folder / "broker.log"
        self._process: BrokerProcess | None = None
        self._control: ControlChannel | None = None
        self._port = 0
        self._registry_url: str | None = None
        self.peer_proxies: dict[str, str] = {}
        """Addresses of the interruptible proxies through which this node connects to its peers, by peer address."""
        self.records_requests = True
        """Whether the broker records requests for `last_requests`. Disable it in benchmarks, as it costs a sixth of the
        throughput with small requests.
        """
        self._paused = False
        self._faulty = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap} pid {self.pid}>" if self.is_running else "<Broker not running>"

    @property
    def command(self) -> list[str]:
        """Return the command line of the broker process, `chronik.testing.broker_process`; subclasses may wrap it."""
        return [sys.executable, "-P", "-m", "chronik.testing.broker_process"]

    # Addresses, paths and config

    @property
    def port(self) -> int:
        """Return the broker's port, which stays the same after the first start."""
        if not self._port:
            raise BrokerFailed("the broker was never started")
        return self._port

    @property
    def bootstrap(self) -> str:
        """Return the address for clients' `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    @property
    def data_dir(self) -> Path:
        """Return the data directory."""
        return self._folder / "data"

    @property
    def config(self) -> dict[str, Any]:
        """Return a copy of the config, without defaults."""
        return deepcopy(self._config)

    def configure(self, **config: Any) -> None:
        """Change config keys for the next start. Of the Kafka configs in `broker`, only the given ones change.

        Raises:
            ConfigError: The config is invalid.
        """
        if "broker" in config:
            config["broker"] = self._config.get("broker", {}) | config["broker"]
        changed = self._config | config
        load_config(None, {}, **changed)
        self._config = changed

    @property
    def pid(self) -> int:
        """Return the process id of the running broker."""
        return self._running_process().pid

    @property
    def is_running(self) -> bool:
        """Return whether the process is running."""
        process = self._process  # another thread may kill it concurrently
        return process is not None and process.poll() is None

    @property
    def log(self) -> str:
        """Return the log output of all runs of the broker."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    # Lifecycle

    def start(self) -> Broker:
        """Start the broker and wait until it accepts clients.

        Raises:
            BrokerFailed: The broker did not start; the message ends with the last lines of its log.
        """
        if self.is_running:
            raise BrokerFailed(f"the broker is running already, with pid {self.pid}")
        self._release()
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            is_default_command = type(self).command is Broker.command
            self._process = (is_default_command and fork_broker(log)) or self._start_new_process(log)
        self._control = ControlChannel(self._process)
        try:
            kafka_address = {} if LISTENERS in self._config.get("broker", ()) else {"kafka": f"{HOST}:{self._port}"}
            # Only non-default options: nodes of earlier versions do not know them.
            options: dict[str, Any] = {PEER_PROXIES_KEY: self.peer_proxies} if self.peer_proxies else {}
            options |= {} if self.records_requests else {RECORDS_REQUESTS_KEY: False}
            self._control.send({"data_dir": self.data_dir} | kafka_address | self._config | options)
            self._port = self._control.receive(START_SECONDS_MAX)["ready"]
            if self._registry_url is not None:
                self._serve_registry()
        except BrokerFailed as failure:
            self.kill()
            raise self._build_error_with_log(f"the broker did not start: {failure}") from None
        return self

    def _start_new_process(self, log: IO[bytes]) -> BrokerProcess:
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # A separate process group: Ctrl-C reaches only the test run, which then stops its brokers. If the run is
            # killed while the broker is paused, the kernel continues the orphaned group and sends SIGHUP, which ends
            # it.
            process_group=None if sys.platform == "win32" else 0,
        )

    def stop(self) -> None:
        """Stop the broker gracefully (SIGTERM).

        Raises:
            BrokerFailed: It did not stop in time, or with another exit code than 0.
        """
        process = self._running_process()
        self.resume()
        process.terminate()
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._build_error_with_log(f"the broker did not stop within {STOP_SECONDS_MAX:g} s") from None
        self._release()
        if code != 0 and sys.platform != "win32":
            raise self._build_error_with_log(f"the broker exited with code {code}")

    def kill(self) -> None:
        """Kill the broker (SIGKILL) as in a crash, and wait until the process has exited."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._release()

    def restart(self) -> None:
        """Restart the broker with the same port and data; stop it gracefully first if it is running."""
        if self.is_running:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Pause the process (SIGSTOP): its connections stay open, but it does not respond."""
        process = self._running_process()
        process.send_signal(signal.SIGSTOP)
        # The signal takes effect asynchronously: wait until all threads are stopped.
        if isinstance(process, ForkedProcess):
            process.wait_until_stopped()
        elif sys.platform == "linux":
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        """Continue a paused process."""
        if self._paused:
            self._running_process().send_signal(signal.SIGCONT)
            self._paused = False

    def heal(self) -> None:
        """Restore the broker after a test: start or resume it if necessary, and remove all faults."""
        if not self.is_running:
            self.start()
        self.resume()
        if self._faulty:
            self.clear_faults()

    def close(self) -> None:
        """Stop the broker if it is running, and remove its temporary directory."""
        try:
            if self.is_running:
                self.stop()
        finally:
            self.kill()
            if self._temporary is not None:
                self._temporary()

    # Schema registry

    def registry_settings(self) -> dict[str, str]:
        """Return the settings for clients of the broker's schema registry, such as SchemaRegistryClient.

        The registry is served from the first call on. Its URL stays the same when the broker is restarted.
        """
        return {"url": self._registry_url or self._serve_registry()}

    def _serve_registry(self) -> str:
        """Let the broker serve its registry, on the same port as before if there is one, and return the URL."""
        port = 0 if self._registry_url is None else urlsplit(self._registry_url).port
        answer = self._ask("serve_registry", host=HOST, port=port)
        if "error" in answer:
            raise BrokerFailed(f"the broker cannot serve its schema registry: {answer['error']}")
        self._registry_url = answer["url"]
        return answer["url"]  # type: ignore[no-any-return]

    # Topics and records

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic."""
        with self.cluster() as cluster:
            create_topics(cluster, [NewTopic(name, partitions, configs=configs or {})])

    @overload
    def records(self, topic: str, *, decode: Literal[False] = False) -> list[ConsumedRecord]: ...

    @overload
    def records(self, topic: str, *, decode: Literal[True]) -> list[DecodedRecord]: ...

    def records(self, topic: str, *, decode: bool = False) -> list[ConsumedRecord] | list[DecodedRecord]:
        """Return all records of a topic, ordered by partition and offset.

        With `decode`, decode keys and values that name a schema (Avro, JSON Schema, Protobuf).

        Raises:
            UndecodableValueError: A key or value does not match the schema that it names.
        """
        with self.cluster() as cluster:
            found = read_all(cluster, topic)
        if not decode:
            return found
        from chronik.testing.decoded import decode_records

        return decode_records(found, self.registry_settings())

    def cluster(self) -> ClusterClient:
        """Return a cluster client connected to the broker."""
        return ClusterClient(self.bootstrap, client_id="chronik-testing")

    # Fault injection

    def fail(self, api: str, error: str, times: int | None = 1) -> None:
        """Fail the next `times` requests of an API with an error. None means all requests until `clear_faults`."""
        if error not in ErrorCode.__members__:
            raise ValueError(f"unknown Kafka error code {error!r}")
        self._ask("fail", api=_check_api(api), error=error, times=_check_times(times))
        self._faulty = True

    def delay(self, api: str, seconds: float, times: int | None = None) -> None:
        """Delay the next `times` requests of an API. None means all requests until `clear_faults`."""
        if seconds < 0:
            raise ValueError(f"negative delay: {seconds} s")
        self._ask("delay", api=_check_api(api), seconds=seconds, times=_check_times(times))
        self._faulty = True

    def fence(self, transactional_id: str) -> None:
        """Fence the producer with this transactional id, as a new producer does. Its open transaction is aborted."""
        with self.cluster() as cluster:
            init_transactional_id(cluster, transactional_id)

    def time_out_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of this transactional id, as if `transaction.timeout.ms` had expired.

        Raises:
            BrokerFailed: The id has no open transaction.
        """
        outcome = self._ask("time_out", transactional_id=transactional_id)
        if outcome != ErrorCode.NONE.name:
            raise BrokerFailed(f"the transaction of {transactional_id!r} cannot time out: {outcome}")

    def move_coordinator(self, times: int | None = 1) -> None:
        """Simulate a coordinator change: fail the next `times` requests of each transaction API with NOT_COORDINATOR.

        Clients then look up the coordinator again. None means all requests until `clear_faults`.
        """
        for api in ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"):
            self.fail(api, ErrorCode.NOT_COORDINATOR.name, times)

    def clear_faults(self) -> None:
        """Remove all injected faults."""
        self._ask("clear_faults")
        self._faulty = False

    def last_requests(self, count: int = 20) -> list[SeenRequest]:
        """Return the last requests processed since the broker started, oldest first."""
        return [SeenRequest(*fields) for fields in self._ask("last_requests", count=count)]

    def _ask(self, command: str, **arguments: Any) -> Any:
        self._running_process()
        if self._paused:
            raise BrokerFailed("the broker is paused")
        assert self._control is not None
        try:
            return self._control.call(command, **arguments)
        except BrokerFailed as failure:
            raise self._build_error_with_log(str(failure)) from None

    def _running_process(self) -> BrokerProcess:
        if self._process is None:
            raise BrokerFailed("the broker is not running")
        if (code := self._process.poll()) is not None:
            raise self._build_error_with_log(f"the broker exited unexpectedly with code {code}")
        return self._process

    def _release(self) -> None:
        """Close the control channel and reset the state after the broker process has exited."""
        if self._control is not None:
            self._control.close()
        self._process = self._control = None
        self._paused = self._faulty = False

    def _build_error_with_log(self, message: str) -> BrokerFailed:
        lines = self.log.splitlines()[-LOG_LINES_IN_ERRORS:]
        return BrokerFailed("\n  ".join([message, *(lines or ["(its log is empty)"])]))


def _check_api(api: str) -> str:
    if api not in API_NAMES:
        raise ValueError(f"unknown API {api!r}; expected one of {', '.join(sorted(API_NAMES))}")
    return api


def _check_times(times: int | None) -> int | None:
    if times is not None and times < 1:
        raise ValueError(f"times = {times}: expected at least 1, or None for all")
    return times
