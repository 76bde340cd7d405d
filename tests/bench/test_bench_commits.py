from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import pytest

from chronik.bench import commits
from chronik.bench.commits import CommitsLoad, measure
from chronik.bench.errors import BenchmarkError
from chronik.bench.main import main
from chronik.bench.pipelined import open_pipelined_connections, run_with_uvloop, send_at_constant_rate
from chronik.client.admin import list_topics
from chronik.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.testing import Broker
from chronik.testing.seen import RECORDED_REQUESTS_MAX

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench_broker() -> Iterator[Broker]:
    with Broker(flush="os") as broker:
        yield broker


@pytest.fixture(autouse=True)
def _reset_faults(bench_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(commits, "WARM_UP_SECONDS", 0.1)
    yield
    bench_broker.heal()


def test_commits_reports_requests_and_offsets_per_second(
    capsys: pytest.CaptureFixture[str], bench_broker: Broker
) -> None:
    arguments = ["--groups", "5", "--offsets", "3", "--seconds", "1", "--json"]
    assert main(["commits", "-b", bench_broker.bootstrap, *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["groups"] == 5
    assert result["requests"] >= 5
    assert result["requests_per_second"] == pytest.approx(result["requests"] / result["seconds"])
    assert result["offsets_per_second"] == pytest.approx(3 * result["requests_per_second"])
    assert 0 < result["latency"]["p50_ms"] <= result["latency"]["p99_ms"] <= result["latency"]["max_ms"]
    recorded_apis = [request.api for request in bench_broker.last_requests(RECORDED_REQUESTS_MAX)]
    # The recorder keeps only the latest requests.
    assert recorded_apis.count("OffsetCommit") >= min(result["requests"], RECORDED_REQUESTS_MAX // 2)


def test_commits_at_constant_rate_sends_expected_number_of_requests(bench_broker: Broker) -> None:
    with bench_broker.cluster() as cluster:
        result = measure(cluster, CommitsLoad(groups=4, offsets=2, seconds=0.5, rate=100))
    assert result.requests == 50


def test_commits_deletes_its_topic_and_groups(bench_broker: Broker) -> None:
    with bench_broker.cluster() as cluster:
        measure(cluster, CommitsLoad(groups=3, offsets=1, seconds=0.1))
        assert not [topic.name for topic in list_topics(cluster) if "commits" in (topic.name or "")]
        listed = cluster.any_broker().request(ListGroupsRequest(), ListGroupsResponse)
        assert not listed.groups


def test_commits_retries_when_coordinator_has_moved(bench_broker: Broker) -> None:
    bench_broker.fail("OffsetCommit", "NOT_COORDINATOR", times=3)
    bench_broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    with bench_broker.cluster() as cluster:
        assert measure(cluster, CommitsLoad(groups=2, offsets=1, seconds=0.5)).requests >= 2


def test_commits_resends_requests_in_flight_to_new_coordinator(bench_broker: Broker) -> None:
    bench_broker.fail("OffsetCommit", "NOT_COORDINATOR", times=20)
    with bench_broker.cluster() as cluster:
        assert measure(cluster, CommitsLoad(groups=1, offsets=1, seconds=0.5, rate=1000)).requests == 500


def test_group_deletion_retries_after_not_coordinator(bench_broker: Broker) -> None:
    bench_broker.fail("DeleteGroups", "NOT_COORDINATOR", times=2)
    with bench_broker.cluster() as cluster:
        measure(cluster, CommitsLoad(groups=3, offsets=1, seconds=0.1))
        assert not cluster.any_broker().request(ListGroupsRequest(), ListGroupsResponse).groups


def test_commits_fails_on_non_retriable_error(bench_broker: Broker) -> None:
    bench_broker.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=None)
    with bench_broker.cluster() as cluster, pytest.raises(BenchmarkError, match="failed: GROUP_AUTHORIZATION_FAILED"):
        measure(cluster, CommitsLoad(groups=2, offsets=1, seconds=5))


def test_commits_fails_when_coordinator_lookup_times_out(bench_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "MOVE_SECONDS_MAX", 0.2)
    bench_broker.fail("OffsetCommit", "NOT_COORDINATOR", times=None)
    with bench_broker.cluster() as cluster, pytest.raises(BenchmarkError, match="failed: NOT_COORDINATOR"):
        measure(cluster, CommitsLoad(groups=2, offsets=1, seconds=5))


def test_pipelined_requests_receive_matching_responses(bench_broker: Broker) -> None:
    names = [f"topic-{number}" for number in range(50)]

    async def send_all() -> list[str | None]:
        with bench_broker.cluster() as cluster:
            async with open_pipelined_connections([cluster.any_broker()]) as (pipe,):
                response_futures = [pipe.send(_metadata_request(name)) for name in names]
                return [_topic_name(await response_future) for response_future in response_futures]

    assert run_with_uvloop(send_all()) == names


def test_pipelined_request_fails_when_broker_dies(bench_broker: Broker) -> None:
    bench_broker.delay("Metadata", 30)

    async def send_and_kill() -> None:
        with bench_broker.cluster() as cluster:
            async with open_pipelined_connections([cluster.any_broker()]) as (pipe,):
                response_future = pipe.send(_metadata_request("any"))
                await asyncio.to_thread(bench_broker.kill)
                async with asyncio.timeout(10):
                    await response_future

    with pytest.raises(BenchmarkError, match="closed the connection"):
        run_with_uvloop(send_and_kill())


def test_constant_rate_sender_does_not_wait_for_responses() -> None:
    all_sent = asyncio.Event()

    async def ask(number: int) -> None:
        if number == 19:
            all_sent.set()
        await all_sent.wait()

    started = time.perf_counter()
    latencies = run_with_uvloop(send_at_constant_rate(ask, per_second=100, seconds=0.2))
    assert time.perf_counter() - started >= 0.19
    assert len(latencies) == 20
    assert max(latencies) > 0.15  # the first request waited until the last was sent


def _metadata_request(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)


def _topic_name(response: object) -> str | None:
    assert isinstance(response, MetadataResponse)
    return response.topics[0].name
