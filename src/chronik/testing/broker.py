"""A broker to test against: a real process on a free port, which can be killed, paused and made to fail."""

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
from typing import IO, Any, Self

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import Cluster
from chronik.client.consumer import read_all
from chronik.client.records import ConsumedRecord
from chronik.client.transactions import init_producer
from chronik.config import load_config
from chronik.listeners import LISTENERS
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode
from chronik.testing.broker_process import DETOURS, KEEPS_REQUESTS
from chronik.testing.control import BrokerFailed, ControlChannel
from chronik.testing.nursery import BrokerProcess, Forked, forked
from chronik.testing.seen import SeenRequest

HOST = "127.0.0.1"
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
LOG_LINES_SHOWN = 20

API_NAMES = frozenset(api.name for api in APIS.values())


class Broker:
    """One node, standalone. Keywords are the keys of its config file, such as `flush="os"` or
    `broker={"num.partitions": 3}`.

        with Broker() as broker:
            Producer({"bootstrap.servers": broker.bootstrap})

    Everything lives in `folder`, or in a temporary folder that goes away with the broker.
    """

    def __init__(self, folder: Path | None = None, **config: Any) -> None:
        """Raises ConfigError."""
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
        self.detours: dict[str, str] = {}
        """Where this node finds its peers, by the addresses that the metadata has of them: a link that can be cut."""
        self.keeps_requests = True
        """Whether it notes what it is asked, for `last_requests`: a sixth of the time of one that is asked small things
        at full speed. A node that is measured does without."""
        self._paused = False
        self._faulty = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap} pid {self.pid}>" if self.running else "<Broker not running>"

    @property
    def command(self) -> list[str]:
        """What is run: `chronik.testing.broker_process`; a subclass may do something to its process first."""
        return [sys.executable, "-P", "-m", "chronik.testing.broker_process"]

    # Where it is

    @property
    def port(self) -> int:
        """The port it chose at its first start, and keeps."""
        if not self._port:
            raise BrokerFailed("the broker was never started")
        return self._port

    @property
    def bootstrap(self) -> str:
        """What clients take as bootstrap.servers."""
        return f"{HOST}:{self.port}"

    @property
    def data_dir(self) -> Path:
        return self._folder / "data"

    @property
    def config(self) -> dict[str, Any]:
        """What it is configured with, beside its defaults: a copy."""
        return deepcopy(self._config)

    def configure(self, **config: Any) -> None:
        """Changes keys of its config, from its next start on. Of `broker`, Kafka's own, those stay that are not named.
        Raises ConfigError."""
        if "broker" in config:
            config["broker"] = self._config.get("broker", {}) | config["broker"]
        changed = self._config | config
        load_config(None, {}, **changed)
        self._config = changed

    @property
    def pid(self) -> int:
        return self._running_process().pid

    @property
    def running(self) -> bool:
        process = self._process  # another thread may just have killed it
        return process is not None and process.poll() is None

    @property
    def log(self) -> str:
        """All that it has logged, over all its restarts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    # Its life

    def start(self) -> Broker:
        """Returns when it answers clients. Raises BrokerFailed with the end of its log when it does not."""
        if self.running:
            raise BrokerFailed(f"the broker is running already, with pid {self.pid}")
        self._release()
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            is_usual = type(self).command is Broker.command
            self._process = (is_usual and forked(log)) or self._started_from_nothing(log)
        self._control = ControlChannel(self._process)
        try:
            place = {} if LISTENERS in self._config.get("broker", ()) else {"kafka": f"{HOST}:{self._port}"}
            # Only what is not as usual: nodes of earlier versions know of none of it.
            beside: dict[str, Any] = {DETOURS: self.detours} if self.detours else {}
            beside |= {} if self.keeps_requests else {KEEPS_REQUESTS: False}
            self._control.send({"data_dir": self.data_dir} | place | self._config | beside)
            self._port = self._control.receive(START_SECONDS_MAX)["ready"]
        except BrokerFailed as failure:
            self.kill()
            raise self._with_log(f"the broker did not start: {failure}") from None
        return self

    def _started_from_nothing(self, log: IO[bytes]) -> BrokerProcess:
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # A group of its own: Ctrl-C reaches the test run alone, which then stops its brokers. And should the
            # run be killed while the broker is paused, the system wakes and hangs up an orphaned group: it ends.
            process_group=None if sys.platform == "win32" else 0,
        )

    def stop(self) -> None:
        """Ends it gracefully (SIGTERM). Raises BrokerFailed when it ends otherwise."""
        process = self._running_process()
        self.resume()
        process.terminate()
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._with_log(f"the broker did not stop within {STOP_SECONDS_MAX:g} s") from None
        self._release()
        if code != 0 and sys.platform != "win32":
            raise self._with_log(f"the broker ended with exit code {code}")

    def kill(self) -> None:
        """Ends it as a crash would (SIGKILL), and waits until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._release()

    def restart(self) -> None:
        """Starts it on its old port and data, after a graceful stop if it is still running."""
        if self.running:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Freezes the process (SIGSTOP): its connections stay open, nothing is answered."""
        process = self._running_process()
        process.send_signal(signal.SIGSTOP)
        # A signal takes effect after it was sent: wait until all threads stand still.
        if isinstance(process, Forked):
            process.wait_until_stopped()
        elif sys.platform == "linux":
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._running_process().send_signal(signal.SIGCONT)
            self._paused = False

    def heal(self) -> None:
        """Undoes whatever a test did to it: the next one finds it running and without faults."""
        if not self.running:
            self.start()
        self.resume()
        if self._faulty:
            self.clear_faults()

    def close(self) -> None:
        """Stops it if it is running, and removes its temporary folder."""
        try:
            if self.running:
                self.stop()
        finally:
            self.kill()
            if self._temporary is not None:
                self._temporary()

    # What is in it

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        with self.cluster() as cluster:
            create_topics(cluster, [NewTopic(name, partitions, configs=configs or {})])

    def records(self, topic: str) -> list[ConsumedRecord]:
        """Returns all records of a topic, ordered by partition and offset."""
        with self.cluster() as cluster:
            return read_all(cluster, topic)

    def cluster(self) -> Cluster:
        """Returns a client of ours, for whatever else a test wants to ask."""
        return Cluster(self.bootstrap, client_id="chronik-testing")

    # What it does to clients

    def fail(self, api: str, error: str, times: int | None = 1) -> None:
        """Answers the next `times` requests of an API with an error; None: all, until `clear_faults`."""
        if error not in ErrorCode.__members__:
            raise ValueError(f"no error code of Kafka's is called {error!r}")
        self._ask("fail", api=_checked_api(api), error=error, times=_checked_times(times))
        self._faulty = True

    def delay(self, api: str, seconds: float, times: int | None = None) -> None:
        """Holds the next `times` requests of an API back; None: all, until `clear_faults`."""
        if seconds < 0:
            raise ValueError(f"a delay of {seconds} s")
        self._ask("delay", api=_checked_api(api), seconds=seconds, times=_checked_times(times))
        self._faulty = True

    def fence(self, transactional_id: str) -> None:
        """Does what a second producer with this id does: the first one is fenced, and its transaction aborted."""
        with self.cluster() as cluster:
            init_producer(cluster, transactional_id)

    def time_out(self, transactional_id: str) -> None:
        """Aborts the open transaction of this id as if `transaction.timeout.ms` were over. Raises BrokerFailed when
        none is open."""
        outcome = self._ask("time_out", transactional_id=transactional_id)
        if outcome != ErrorCode.NONE.name:
            raise BrokerFailed(f"the transaction of {transactional_id!r} cannot time out: {outcome}")

    def move_coordinator(self, times: int | None = 1) -> None:
        """Answers the next `times` requests of each kind for a transaction's coordinator with NOT_COORDINATOR: clients
        look for it anew, as after its node was replaced. None: all, until `clear_faults`."""
        for api in ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"):
            self.fail(api, ErrorCode.NOT_COORDINATOR.name, times)

    def clear_faults(self) -> None:
        self._ask("clear_faults")
        self._faulty = False

    def last_requests(self, count: int = 20) -> list[SeenRequest]:
        """Returns the last requests that it has answered since its start, oldest first."""
        return [SeenRequest(*fields) for fields in self._ask("last_requests", count=count)]

    def _ask(self, command: str, **arguments: Any) -> Any:
        self._running_process()
        if self._paused:
            raise BrokerFailed("the broker is paused")
        assert self._control is not None
        try:
            return self._control.call(command, **arguments)
        except BrokerFailed as failure:
            raise self._with_log(str(failure)) from None

    def _running_process(self) -> BrokerProcess:
        if self._process is None:
            raise BrokerFailed("the broker is not running")
        if (code := self._process.poll()) is not None:
            raise self._with_log(f"the broker ended by itself with exit code {code}")
        return self._process

    def _release(self) -> None:
        """Lets go of a process that has ended."""
        if self._control is not None:
            self._control.close()
        self._process = self._control = None
        self._paused = self._faulty = False

    def _with_log(self, message: str) -> BrokerFailed:
        lines = self.log.splitlines()[-LOG_LINES_SHOWN:]
        return BrokerFailed("\n  ".join([message, *(lines or ["(it logged nothing)"])]))


def _checked_api(api: str) -> str:
    if api not in API_NAMES:
        raise ValueError(f"no API is called {api!r}; there are {', '.join(sorted(API_NAMES))}")
    return api


def _checked_times(times: int | None) -> int | None:
    if times is not None and times < 1:
        raise ValueError(f"times = {times}; at least 1, or None for all")
    return times
