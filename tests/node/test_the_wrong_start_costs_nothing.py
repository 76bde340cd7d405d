"""A folder is started as what it is, or refused in one line with nothing touched; what an older start has set aside
comes back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from chronik.broker.set_aside import DELETED_KEPT_MS, MARK_FILE, Mark, SetAside, parse_name
from chronik.errors import ConfigError, DataDamaged
from chronik.files import RealFiles
from chronik.ids import format_id, new_id
from chronik.node.data_folder import DataFolder
from chronik.node.identity import FORMAT, Identity, Mode
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api.talk import batch, produce
from tests.raw import RawClient

DEADLINE_SECONDS = 60
VALUES = [b"value %d" % number for number in range(5)]


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHRONIK_")}
    return subprocess.run(
        [sys.executable, "-m", "chronik", "start", "--kafka", "127.0.0.1:0", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        env=environment,
    )


def refusal(*arguments: str) -> str:
    """The one line that a node says when it is refused."""
    finished = started(*arguments)
    assert finished.returncode == 2, finished.stderr
    (line,) = [line for line in finished.stderr.splitlines() if line.startswith("chronik:")]
    assert "Traceback" not in finished.stderr
    return line


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def stopped(chronik_broker_factory: BrokerFactory) -> Broker:
    """Holds VALUES in `topic`, and was stopped as it should be."""
    broker = chronik_broker_factory()
    broker.create_topic("topic")
    with RawClient(broker.bootstrap) as client:
        for value in VALUES:
            assert not produce(client, "topic", batch(value)).error_code
    broker.stop()
    return broker


def cluster_config(folder: Path) -> Path:
    path = folder / "cluster.toml"
    path.write_text('[[peers]]\nid = 1\nkafka = "127.0.0.1:1"\nraft = "127.0.0.1:0"\n')
    return path


def values_of(broker: Broker) -> list[bytes | None]:
    return [record.value for record in broker.records("topic")]


def older(data_dir: Path) -> None:
    """As versions left it that did not write down the mode."""
    identity = json.loads((data_dir / "node.json").read_bytes())
    kept = {"node_id": identity["node_id"], "directory_id": identity["directory_id"]}
    (data_dir / "node.json").write_text(json.dumps(kept))


@pytest.mark.parametrize("is_older", [False, True])
def test_a_standalone_folder_is_not_started_in_a_cluster(stopped: Broker, tmp_path: Path, is_older: bool) -> None:
    if is_older:
        older(stopped.data_dir)
    before = snapshot(stopped.data_dir)
    line = refusal("--config", str(cluster_config(tmp_path)), "--data", str(stopped.data_dir))
    assert "is the data folder of a standalone node" in line
    assert snapshot(stopped.data_dir) == before
    stopped.start()
    assert values_of(stopped) == VALUES


def test_a_folder_says_whose_it_is_from_its_first_start_on(stopped: Broker) -> None:
    stopped.start()
    with stopped.cluster() as client:
        cluster_id = client.metadata([]).cluster_id
    identity = msgspec.json.decode((stopped.data_dir / "node.json").read_bytes(), type=Identity)
    assert (identity.mode, identity.cluster_id, identity.format) == (Mode.STANDALONE, cluster_id, FORMAT)


def test_an_older_folder_is_brought_over(stopped: Broker) -> None:
    before = (stopped.data_dir / "node.json").read_bytes()
    older(stopped.data_dir)
    stopped.start()
    assert (stopped.data_dir / "node.json").read_bytes() == before
    assert values_of(stopped) == VALUES


def test_a_folder_of_a_newer_version_is_refused(stopped: Broker) -> None:
    path = stopped.data_dir / "node.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"format": FORMAT + 1, "what": "nobody knows yet"}))
    assert f"format {FORMAT + 1}" in refusal("--data", str(stopped.data_dir))


def test_a_node_json_that_is_none_is_damage(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text("{}")
    with pytest.raises(DataDamaged, match=r"node\.json"):
        DataFolder(tmp_path, 1, Mode.STANDALONE).open()


def test_a_lost_node_json_is_refused_and_can_be_restored(stopped: Broker) -> None:
    path = stopped.data_dir / "node.json"
    identity = json.loads(path.read_bytes())
    path.unlink()
    before = snapshot(stopped.data_dir)
    assert "has lost its node.json" in refusal("--data", str(stopped.data_dir))
    assert snapshot(stopped.data_dir) == before
    folder = DataFolder(stopped.data_dir, 1, Mode.STANDALONE, restore_identity=True)
    folder.open()
    folder.close()
    assert json.loads(path.read_bytes())["directory_id"] == identity["directory_id"]
    stopped.start()
    assert values_of(stopped) == VALUES


def test_the_option_restores_a_lost_node_json(stopped: Broker) -> None:
    (stopped.data_dir / "node.json").unlink()
    line = refusal("--data", str(stopped.data_dir), "--restore-identity", "--node-id", "7")
    assert "does not know node 7" in line
    data = str(stopped.data_dir)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHRONIK_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "chronik", "start", "--kafka", "127.0.0.1:0", "--restore-identity", "--data", data],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    try:
        assert any("answers Kafka clients" in line for line in process.stderr)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    stopped.start()
    assert values_of(stopped) == VALUES


def test_lost_metadata_beside_topics_is_refused(stopped: Broker, tmp_path: Path) -> None:
    shutil.move(stopped.data_dir / "__meta", tmp_path / "elsewhere")
    assert "has lost its metadata (__meta)" in refusal("--data", str(stopped.data_dir))
    shutil.move(tmp_path / "elsewhere", stopped.data_dir / "__meta")
    stopped.start()
    assert values_of(stopped) == VALUES


def test_the_node_json_of_another_node_is_refused(
    stopped: Broker, chronik_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    other = chronik_broker_factory(data_dir=tmp_path / "other")
    other.stop()
    own = (stopped.data_dir / "node.json").read_bytes()
    (stopped.data_dir / "node.json").write_bytes((tmp_path / "other" / "node.json").read_bytes())
    assert "belongs to cluster" in refusal("--data", str(stopped.data_dir))
    older(stopped.data_dir)  # one that does not name its cluster
    assert "the metadata knows this one as" in refusal("--data", str(stopped.data_dir))
    (stopped.data_dir / "node.json").write_bytes(own)
    stopped.start()
    assert values_of(stopped) == VALUES


def test_metadata_of_another_cluster_is_refused(
    stopped: Broker, chronik_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    other = chronik_broker_factory(data_dir=tmp_path / "other")
    other.stop()
    shutil.move(stopped.data_dir / "__meta", tmp_path / "own")
    shutil.copytree(tmp_path / "other" / "__meta", stopped.data_dir / "__meta")
    assert "belongs to cluster" in refusal("--data", str(stopped.data_dir))
    shutil.rmtree(stopped.data_dir / "__meta")
    shutil.move(tmp_path / "own", stopped.data_dir / "__meta")
    stopped.start()
    assert values_of(stopped) == VALUES


def test_what_an_older_version_set_aside_by_mistake_comes_back(stopped: Broker) -> None:
    """It was started in a cluster once, which left its mark: metadata of both kinds."""
    older(stopped.data_dir)
    shutil.copytree(stopped.data_dir / "__meta", stopped.data_dir / "__raft")
    (stopped.data_dir / "topics").rename(stopped.data_dir / "unknown")
    stopped.start()
    assert values_of(stopped) == VALUES
    assert not list((stopped.data_dir / "unknown").iterdir())
    assert "is back from unknown/" in stopped.log


def test_what_was_written_since_is_not_replaced_by_what_comes_back(stopped: Broker) -> None:
    shutil.copytree(stopped.data_dir / "topics", stopped.data_dir / "unknown")
    stopped.start()
    assert values_of(stopped) == VALUES
    assert list(stopped.data_dir.glob("unknown/*/0/*.log"))
    assert "has got records of its own since" in stopped.log


def test_a_folder_in_both_modes_is_what_its_first_start_with_this_version_says(tmp_path: Path) -> None:
    for name in ("__meta", "__raft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000001.wal").write_bytes(b"something")
    (tmp_path / "node.json").write_text(json.dumps({"node_id": 1, "directory_id": format_id(new_id())}))
    folder = DataFolder(tmp_path, 1, Mode.CLUSTER)
    folder.open()
    folder.close()
    with pytest.raises(ConfigError, match='write "standalone" there'):
        DataFolder(tmp_path, 1, Mode.STANDALONE).open()


# What is deleted, and when


TOPIC, CLUSTER = format_id(bytes(range(16))), "a-cluster"


def set_aside(folder: Path, mark: Mark | None) -> tuple[RealFiles, SetAside]:
    files = RealFiles(folder)
    files.make_folder(f"topics/{TOPIC}/0")
    log = files.create(f"topics/{TOPIC}/0/00000000000000000000.log")
    log.append(b"records")
    log.close()
    aside = SetAside(files)
    aside.put(TOPIC, "unknown", mark)
    return files, aside


def test_a_topic_that_its_cluster_deleted_is_kept_for_a_week(tmp_path: Path) -> None:
    files, aside = set_aside(tmp_path, Mark(CLUSTER, 1000))
    aside.give_up_expired(CLUSTER, 1000 + DELETED_KEPT_MS - 1)
    assert files.list_folder("unknown") == [TOPIC]
    aside.give_up_expired(CLUSTER, 1000 + DELETED_KEPT_MS)
    assert (files.list_folder("unknown"), files.list_folder("deleted")) == ([], [TOPIC])


@pytest.mark.parametrize("mark", [None, Mark("another-cluster", 0)])
def test_what_nobody_is_sure_of_is_kept_for_ever(tmp_path: Path, mark: Mark | None) -> None:
    files, aside = set_aside(tmp_path, mark)
    aside.give_up_expired(CLUSTER, 100 * DELETED_KEPT_MS)
    assert files.list_folder("unknown") == [TOPIC]


def test_a_topic_that_comes_back_loses_its_mark(tmp_path: Path) -> None:
    files, aside = set_aside(tmp_path, Mark(CLUSTER, 1000))
    aside.bring_back(TOPIC, [0])
    assert files.list_folder("unknown") == []
    assert files.list_folder(f"topics/{TOPIC}") == ["0"]
    assert not files.exists(f"topics/{TOPIC}/{MARK_FILE}")


def test_only_the_partitions_of_this_node_come_back(tmp_path: Path) -> None:
    files, aside = set_aside(tmp_path, None)
    aside.bring_back(TOPIC, [1])
    assert files.list_folder(f"unknown/{TOPIC}") == ["0"]


def test_a_folder_that_has_no_partitions_number_stays(tmp_path: Path) -> None:
    files, aside = set_aside(tmp_path, None)
    for name in ("²", "٣"):
        files.make_folder(f"unknown/{TOPIC}/{name}")
    aside.bring_back(TOPIC, [0, 2, 3])
    assert files.list_folder(f"unknown/{TOPIC}") == ["²", "٣"]


@pytest.mark.parametrize("name", ["", "lost+found", TOPIC[:-1], f"{TOPIC}-x", f"{TOPIC}-²", f"{TOPIC}0", f"{TOPIC}-"])
def test_names_of_others_are_left_alone(name: str) -> None:
    assert parse_name(name) is None


def test_names_given_here_are_known_again() -> None:
    whole, again, part = parse_name(TOPIC), parse_name(f"{TOPIC}~2"), parse_name(f"{TOPIC}-12~3")
    assert whole == again
    assert whole is not None
    assert whole.partition is None
    assert part is not None
    assert part.partition == "12"
