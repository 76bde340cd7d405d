from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import pytest

from chronik.bench import commits
from chronik.bench.cluster_pipes import at_a_steady_rate, open_pipes, run_on_best_loop
from chronik.bench.commits import CommitsLoad, measure
from chronik.bench.errors import BenchFailed
from chronik.bench.main import main
from chronik.client.admin import list_topics
from chronik.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.testing import Broker
from chronik.testing.seen import SEEN_REQUESTS_MAX

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured() -> Iterator[Broker]:
    with Broker(flush="os") as broker:
        yield broker


@pytest.fixture(autouse=True)
def _healed(measured: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(commits, "WARM_UP_SECONDS", 0.1)
    yield
    measured.heal()


def test_commits_are_counted_by_request_and_by_offset(capsys: pytest.CaptureFixture[str], measured: Broker) -> None:
    words = ["--groups", "5", "--offsets", "3", "--seconds", "1", "--json"]
    assert main(["commits", "-b", measured.bootstrap, *words]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["groups"] == 5
    assert result["requests"] >= 5
    assert result["requests_per_second"] == pytest.approx(result["requests"] / result["seconds"])
    assert result["offsets_per_second"] == pytest.approx(3 * result["requests_per_second"])
    assert 0 < result["latency"]["p50_ms"] <= result["latency"]["p99_ms"] <= result["latency"]["max_ms"]
    seen = [request.api for request in measured.last_requests(SEEN_REQUESTS_MAX)]
    assert seen.count("OffsetCommit") >= min(result["requests"], SEEN_REQUESTS_MAX // 2)  # it forgets older ones


def test_a_steady_rate_sends_as_many_requests_as_are_due(measured: Broker) -> None:
    with measured.cluster() as cluster:
        result = measure(cluster, CommitsLoad(groups=4, offsets=2, seconds=0.5, rate=100))
    assert result.requests == 50


def test_topics_and_groups_are_removed_again(measured: Broker) -> None:
    with measured.cluster() as cluster:
        measure(cluster, CommitsLoad(groups=3, offsets=1, seconds=0.1))
        assert not [topic.name for topic in list_topics(cluster) if "commits" in (topic.name or "")]
        listed = cluster.any_broker().request(ListGroupsRequest(), ListGroupsResponse)
        assert not listed.groups


def test_a_coordinator_that_has_moved_is_looked_for_again(measured: Broker) -> None:
    measured.fail("OffsetCommit", "NOT_COORDINATOR", times=3)
    measured.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    with measured.cluster() as cluster:
        assert measure(cluster, CommitsLoad(groups=2, offsets=1, seconds=0.5)).requests >= 2


def test_a_coordinator_that_moves_is_followed_by_all_that_is_under_way(measured: Broker) -> None:
    measured.fail("OffsetCommit", "NOT_COORDINATOR", times=20)
    with measured.cluster() as cluster:
        assert measure(cluster, CommitsLoad(groups=1, offsets=1, seconds=0.5, rate=1000)).requests == 500


def test_groups_are_deleted_where_they_have_moved_to(measured: Broker) -> None:
    measured.fail("DeleteGroups", "NOT_COORDINATOR", times=2)
    with measured.cluster() as cluster:
        measure(cluster, CommitsLoad(groups=3, offsets=1, seconds=0.1))
        assert not cluster.any_broker().request(ListGroupsRequest(), ListGroupsResponse).groups


def test_a_commit_that_is_refused_for_good_ends_the_measurement(measured: Broker) -> None:
    measured.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=None)
    with measured.cluster() as cluster, pytest.raises(BenchFailed, match="answered with GROUP_AUTHORIZATION_FAILED"):
        measure(cluster, CommitsLoad(groups=2, offsets=1, seconds=5))


def test_a_coordinator_is_not_looked_for_without_end(measured: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "MOVE_SECONDS_MAX", 0.2)
    measured.fail("OffsetCommit", "NOT_COORDINATOR", times=None)
    with measured.cluster() as cluster, pytest.raises(BenchFailed, match="answered with NOT_COORDINATOR"):
        measure(cluster, CommitsLoad(groups=2, offsets=1, seconds=5))


def test_requests_on_one_pipe_are_answered_each_with_its_own_answer(measured: Broker) -> None:
    names = [f"topic-{number}" for number in range(50)]

    async def ask_all() -> list[str | None]:
        with measured.cluster() as cluster:
            async with open_pipes([cluster.any_broker()]) as (pipe,):
                answers = [pipe.send(_about(name)) for name in names]
                return [_name_in(await answer) for answer in answers]

    assert run_on_best_loop(ask_all()) == names


def test_a_broker_that_dies_fails_what_is_under_way(measured: Broker) -> None:
    measured.delay("Metadata", 30)

    async def ask_and_kill() -> None:
        with measured.cluster() as cluster:
            async with open_pipes([cluster.any_broker()]) as (pipe,):
                answer = pipe.send(_about("any"))
                await asyncio.to_thread(measured.kill)
                async with asyncio.timeout(10):
                    await answer

    with pytest.raises(BenchFailed, match="closed the connection"):
        run_on_best_loop(ask_and_kill())


def test_requests_are_sent_when_they_are_due_whatever_is_unanswered() -> None:
    everybody_sent = asyncio.Event()

    async def ask(number: int) -> None:
        if number == 19:
            everybody_sent.set()
        await everybody_sent.wait()

    began = time.perf_counter()
    latencies = run_on_best_loop(at_a_steady_rate(ask, per_second=100, seconds=0.2))
    assert time.perf_counter() - began >= 0.19
    assert len(latencies) == 20
    assert max(latencies) > 0.15  # the first waited for the last to be sent


def _about(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)


def _name_in(response: object) -> str | None:
    assert isinstance(response, MetadataResponse)
    return response.topics[0].name
