"""The pytest plugin: test suites that use it run in their own pytest process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

RUN_SECONDS_MAX = 120.0


@pytest.fixture(autouse=True)
def _no_inherited_pytest_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options, timeout=RUN_SECONDS_MAX)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_ended(pid: int) -> None:
    deadline = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still exists"
        time.sleep(0.02)


def test_plugin_imports_no_chronik_modules_until_fixture_is_used(pytester: pytest.Pytester) -> None:
    source = """
        import sys

        def test_nothing_is_imported():
            imported = {name for name in sys.modules if name.split(".")[0] == "chronik"}
            assert imported == {"chronik", "chronik.testing", "chronik.testing.plugin"}
            assert "asyncio" not in sys.modules
            assert "msgspec" not in sys.modules
    """
    # The plugin of anyio, which confluent-kafka's registry client depends on, imports asyncio.
    run(pytester, source, "-p", "no:anyio").assert_outcomes(passed=1)


def test_producer_test_with_broker_and_topic_fixtures_passes(pytester: pytest.Pytester) -> None:
    source = """
        from confluent_kafka import Producer

        def test_orders_are_written(chronik_broker, chronik_topic):
            producer = Producer({"bootstrap.servers": chronik_broker.bootstrap})
            producer.produce(chronik_topic, b"an order", key=b"ada")
            producer.flush()
            assert [(r.key, r.value) for r in chronik_broker.records(chronik_topic)] == [(b"ada", b"an order")]
    """
    run(pytester, source).assert_outcomes(passed=1)


def test_topic_fixture_creates_new_topic_with_marker_options(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        names = []

        @pytest.mark.parametrize("text", ["a b/c", "ü" * 300])
        def test_named_after_the_test(chronik_topic, text):
            names.append(chronik_topic)
            assert chronik_topic.startswith("test_named_after_the_test")

        @pytest.mark.chronik_topic(partitions=3, configs={"retention.ms": "1000"})
        def test_with_partitions(chronik_broker, chronik_topic):
            names.append(chronik_topic)
            with chronik_broker.cluster() as cluster:
                assert len(cluster.partitions(chronik_topic)) == 3

        def test_all_were_different():
            assert len(set(names)) == 3
    """
    run(pytester, source, "--strict-markers").assert_outcomes(passed=4)


def test_config_of_shared_broker_can_be_overridden(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def chronik_broker_config():
            return {"node_id": 5, "broker": {"num.partitions": 4}}
        """
    )
    source = """
        def test_it_is_used(chronik_broker):
            with chronik_broker.cluster() as cluster:
                assert [broker.node_id for broker in cluster.metadata([]).brokers] == [5]
    """
    run(pytester, source).assert_outcomes(passed=1)


def test_failed_test_report_contains_its_own_requests(pytester: pytest.Pytester) -> None:
    source = """
        def test_before(chronik_broker):
            with chronik_broker.cluster() as cluster:
                assert cluster.coordinator("a-group").request

        def test_failing(chronik_broker, chronik_topic):
            chronik_broker.fail("Metadata", "REQUEST_TIMED_OUT")
            chronik_broker.records(chronik_topic)
            assert False

        def test_passing(chronik_topic):
            print("no output expected")
    """
    result = run(pytester, source)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*Last requests to <Broker 127.0.0.1:* pid *>*",
            "*(chronik-testing)  CreateTopics v7  * ms  ok",
            "*(chronik-testing)  Metadata v13  * ms  REQUEST_TIMED_OUT",
        ]
    )
    result.stdout.no_fnmatch_line("*FindCoordinator*")
    assert result.stdout.str().count("Last requests to") == 1


def test_factory_brokers_are_isolated_and_stopped_after_test(pytester: pytest.Pytester) -> None:
    source = """
        pids = []

        def test_two_brokers(chronik_broker_factory):
            one, two = chronik_broker_factory(), chronik_broker_factory(node_id=2)
            one.create_topic("t")
            with two.cluster() as cluster:
                assert [topic.name for topic in cluster.metadata(None).topics if not topic.is_internal] == []
            assert one.port != two.port
            pids.extend([one.pid, two.pid])

        def test_both_are_gone():
            import os, pytest
            assert len(pids) == 2
            for pid in pids:
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, 0)
    """
    run(pytester, source).assert_outcomes(passed=2)


def test_shared_broker_is_restored_after_each_test(pytester: pytest.Pytester) -> None:
    source = """
        def test_kills(chronik_broker):
            chronik_broker.kill()

        def test_after_kill(chronik_broker, chronik_topic):
            assert chronik_broker.records(chronik_topic) == []

        def test_pauses(chronik_broker):
            chronik_broker.pause()

        def test_after_pause(chronik_broker, chronik_topic):
            assert chronik_broker.records(chronik_topic) == []

        def test_breaks(chronik_broker):
            chronik_broker.fail("Fetch", "UNKNOWN_SERVER_ERROR", times=None)
            chronik_broker.delay("Metadata", 3600)

        def test_after_faults(chronik_broker, chronik_topic):
            assert chronik_broker.records(chronik_topic) == []
    """
    run(pytester, source).assert_outcomes(passed=6)


def test_each_xdist_worker_has_its_own_broker(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_a_broker(chronik_broker, chronik_topic, worker_id, number, pytestconfig):
            path = pytestconfig.rootpath / "brokers" / f"{worker_id}-{chronik_broker.pid}-{chronik_broker.port}"
            path.parent.mkdir(exist_ok=True)
            path.touch()
            assert chronik_broker.records(chronik_topic) == []
    """
    run(pytester, source, "-n", "2", "--dist", "each").assert_outcomes(passed=8)
    brokers = [path.name.split("-") for path in (pytester.path / "brokers").iterdir()]
    assert sorted(worker for worker, _, _ in brokers) == ["gw0", "gw1"]
    assert len({pid for _, pid, _ in brokers}) == len({port for _, _, port in brokers}) == 2
    for _, pid, _ in brokers:
        wait_until_ended(int(pid))


def test_broker_start_failure_contains_reason(pytester: pytest.Pytester) -> None:
    source = """
        import pytest
        from chronik.errors import ConfigError
        from chronik.testing import Broker, BrokerFailed

        def test_wrong_config(chronik_broker_factory):
            with pytest.raises(ConfigError, match="flush"):
                chronik_broker_factory(flush="never")

        def test_folder_in_use(chronik_broker_factory):
            broker = chronik_broker_factory()
            with pytest.raises(BrokerFailed, match="did not start") as failed:
                chronik_broker_factory(data_dir=broker.data_dir)
            assert str(broker.data_dir) in str(failed.value)
    """
    run(pytester, source).assert_outcomes(passed=2)


@pytest.mark.parametrize("paused", [False, True])
def test_killed_test_run_leaves_no_broker_behind(tmp_path: Path, paused: bool) -> None:
    source = f"""
import time
from chronik.testing import Broker
broker = Broker().start()
pid = broker.pid
{"broker.pause()" if paused else ""}
print(pid, flush=True)
time.sleep(3600)
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, env=environment)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_until_ended(pid)


def test_documented_examples_pass(pytester: pytest.Pytester) -> None:
    text = (Path(__file__).parents[2] / "docs" / "guides" / "testing.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) >= 3
    for number, example in enumerate(examples):
        pytester.makepyfile(**{f"test_example_{number}": example})
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=RUN_SECONDS_MAX)
    outcomes = result.parseoutcomes()
    assert set(outcomes) == {"passed"}
    assert outcomes["passed"] >= len(examples)
