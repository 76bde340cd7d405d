"""Landing on S3 through faults of the network and the store: each record lands once, and errors say what to do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from chronik.client.records import OutgoingRecord
from chronik.pipeline.journal.reports import ProgressReporter
from chronik.pipeline.landing import run
from chronik.pipeline.landing.driver import LandingFailedError, LandingSummary
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.storage_errors import TableStorageError
from chronik.pipeline.tables.topic_table import TableCommitError, TopicTable
from chronik.testing import Broker
from tests.pipeline.s3_fault_proxy import Fault, FaultKind, FaultProxyProcess, Operation, run_s3_fault_proxy
from tests.pipeline.seaweedfs import S3Server
from tests.pipeline.table_fixtures import SPEC, JournalledTopic, RecordPosition, build_batch, scan_positions
from tests.run_size import SEED, sized

pytestmark = pytest.mark.xdist_group("spark")

PARTITIONS, RECORDS_PER_ROUND = 3, 40
RECORDS = sized(2, 20) * RECORDS_PER_ROUND

COMMITS = r"_delta_log/\d+\.json"

BACKOFF_SECONDS_MIN = 0.09
"""Minimum delay before a throttled request is repeated: delta-rs waits at least 100 ms."""

SURVIVED_FAULTS = {
    "network": (
        Fault(FaultKind.LOST_RESPONSE, [Operation.CONDITIONAL_PUT], COMMITS, count=2),
        Fault(FaultKind.TRUNCATED_BODY, [Operation.GET], skip=5, count=2),
        Fault(FaultKind.TRUNCATED_BODY, [Operation.LIST], skip=5, count=1),
        Fault(FaultKind.LOST_RESPONSE, probability=0.1),
        Fault(FaultKind.LOST_REQUEST, probability=0.1),
    ),
    "commits": (
        Fault(FaultKind.PRECONDITION_FAILED, [Operation.CONDITIONAL_PUT], COMMITS, skip=1, count=2, is_executed=True),
        Fault(FaultKind.CONFLICT, [Operation.CONDITIONAL_PUT], COMMITS, skip=1, count=2, is_executed=True),
        Fault(FaultKind.CONFLICT, [Operation.CONDITIONAL_PUT], COMMITS, skip=1, count=1),
    ),
    "load": (
        Fault(FaultKind.SLOW_DOWN, probability=0.1),
        Fault(FaultKind.INTERNAL_ERROR, probability=0.1, is_executed=True),
        Fault(FaultKind.DELAY, [Operation.LIST], delay_s=0.1),
    ),
    "uploads": (
        Fault(FaultKind.LOST_RESPONSE, [Operation.CREATE_UPLOAD], count=2),
        Fault(FaultKind.INTERNAL_ERROR, [Operation.UPLOAD_PART], count=2),
        Fault(FaultKind.LOST_RESPONSE, [Operation.COMPLETE_UPLOAD], count=2),
        Fault(FaultKind.EXPIRED_TOKEN, [Operation.UPLOAD_PART], skip=2, count=1),
    ),
}
"""Faults through which a run completes by itself."""

PERMANENT_FAULTS = {
    FaultKind.EXPIRED_TOKEN: "the session token has expired: renew AWS_SESSION_TOKEN or the credentials of AWS_PROFILE",
    FaultKind.UNKNOWN_KEY: "the store does not know the access key ID: correct AWS_ACCESS_KEY_ID or --storage-option"
    " aws_access_key_id=…",
    FaultKind.SLOW_DOWN: "the store limits the request rate: try again later",
    FaultKind.INTERNAL_ERROR: "{endpoint} failed with an internal error: try again later, and check the store's log",
    FaultKind.LOST_REQUEST: "{endpoint} closed the connection during PUT: try again, and check the network and the"
    " store",
    FaultKind.TRUNCATED_BODY: "{endpoint} closed the connection during GET: try again, and check the network and the"
    " store",
}
"""Kinds of faults that affect every request of an operation, with the remedy in the message."""


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[FaultProxyProcess]:
    with run_s3_fault_proxy(s3_server.endpoint, seed=SEED) as proxy:
        yield proxy


def write_task_output(table: TopicTable, span: PartitionRange) -> TaskOutput:
    descriptor = table.descriptor()
    with descriptor.writer() as writer:
        writer.write(build_batch(span, descriptor.schema))
    return TaskOutput((span,), writer.files)


class FaultyLanding:
    """A topic with some records that are not JSON, and its landing through a proxy."""

    def __init__(self, topic: JournalledTopic, root: str, server: S3Server, proxy: FaultProxyProcess) -> None:
        self.topic, self.root = topic, root
        self._server, self._proxy = server, proxy

    def land(self) -> LandingSummary:
        return run(
            self.topic.broker.bootstrap,
            self.root,
            [self.topic.name],
            once=True,
            format="json",
            round_records_max=RECORDS_PER_ROUND,
            storage_options=self._server.options | {"aws_endpoint_url": self._proxy.endpoint},
            reporter=ProgressReporter(),
        )

    def find_wrong_positions(self) -> tuple[list[RecordPosition], list[RecordPosition]]:
        """Return the positions that are missing from the tables, and those that are in them more than once."""
        uris = table_uri(self.root, self.topic.name), build_dead_letters_uri(self.root, self.topic.name)
        landed = scan_positions(self._server.options, *uris)
        missing = set(self.topic.acknowledged) - set(landed)
        repeated = [one for one, other in itertools.pairwise(landed) if one[:2] == other[:2]]
        return list(missing), repeated


@pytest.fixture
def landing(
    chronik_broker: Broker, chronik_topic: str, s3_server: S3Server, s3_root: str, proxy: FaultProxyProcess
) -> FaultyLanding:
    topic = JournalledTopic(chronik_broker, chronik_topic)
    values = (b"no json" if number % 7 == 0 else b'{"id": %d}' % number for number in range(RECORDS))
    topic.send([OutgoingRecord(value, partition=number % PARTITIONS) for number, value in enumerate(values)])
    proxy.inject()
    return FaultyLanding(topic, s3_root, s3_server, proxy)


@pytest.mark.chronik_topic(partitions=PARTITIONS)
@pytest.mark.parametrize("name", SURVIVED_FAULTS)
def test_each_record_lands_once_through_faults(landing: FaultyLanding, proxy: FaultProxyProcess, name: str) -> None:
    proxy.inject(*SURVIVED_FAULTS[name])
    landing.land()
    expected = {fault.kind for fault in SURVIVED_FAULTS[name]}
    assert proxy.read_report().injected.keys() == expected, "every kind of fault has occurred"
    assert landing.find_wrong_positions() == ([], [])


@pytest.mark.chronik_topic(partitions=PARTITIONS)
def test_landing_with_expired_credentials_stops_and_resumes(landing: FaultyLanding, proxy: FaultProxyProcess) -> None:
    proxy.inject(Fault(FaultKind.EXPIRED_TOKEN, skip=60))
    with pytest.raises(LandingFailedError, match=f"^{landing.topic.name}: s3://lake: the session token has expired: "):
        landing.land()
    proxy.inject()
    landing.land()
    assert landing.find_wrong_positions() == ([], [])


@pytest.mark.parametrize("kind", PERMANENT_FAULTS)
def test_permanent_fault_is_reported_with_remedy_and_commit_can_be_repeated(
    s3_server: S3Server, s3_root: str, proxy: FaultProxyProcess, kind: FaultKind
) -> None:
    proxy.inject()
    options = s3_server.options | {"aws_endpoint_url": proxy.endpoint, "max_retries": "1"}
    table = open_or_create_table(f"{s3_root}/orders", SPEC, options)
    output = write_task_output(table, PartitionRange(0, 0, 10))
    operation = Operation.GET if kind is FaultKind.TRUNCATED_BODY else Operation.CONDITIONAL_PUT
    proxy.inject(Fault(kind, [operation]))
    with pytest.raises((TableStorageError, TableCommitError)) as error:
        table.commit([output])
    assert str(error.value) == f"s3://lake: {PERMANENT_FAULTS[kind].format(endpoint=proxy.endpoint)}"
    proxy.inject()
    table.commit([output])
    offsets = [offset for _, offset, _ in scan_positions(s3_server.options, table.uri)]
    assert offsets == list(range(10))


def test_throttled_requests_are_repeated_after_delays(
    s3_server: S3Server, s3_root: str, proxy: FaultProxyProcess
) -> None:
    proxy.inject()
    options = s3_server.options | {"aws_endpoint_url": proxy.endpoint}
    table = open_or_create_table(f"{s3_root}/orders", SPEC, options)
    output = write_task_output(table, PartitionRange(0, 0, 10))
    proxy.inject(Fault(FaultKind.SLOW_DOWN, [Operation.CONDITIONAL_PUT], count=4))
    table.commit([output])
    times = proxy.read_report().times_s[Operation.CONDITIONAL_PUT]
    delays = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(delays) == 4
    assert min(delays) >= BACKOFF_SECONDS_MIN
