"""Which epochs of a query its tasks have written: offsets of the query's group, of a topic that holds no records.

Offsets are committed for partitions of topics, so that there is a topic: its partition N stands for a query's task N,
and the offset that the query's group has committed there is the last epoch that the task has written.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from chronik.client.admin import NewTopic, create_partitions, create_topics
from chronik.client.cluster import Cluster
from chronik.client.groups import Committed, committed_offsets, stable_offset
from chronik.client.records import TopicPartition
from chronik.pipeline.errors import EpochDiffers
from chronik.protocol.errors import ErrorCode, KafkaError

EPOCHS_TOPIC: Final = "__chronik_epochs"

PARTITIONS_MIN: Final = 16
"""More tasks than that are rare on few machines; where there are more, the topic gets more partitions."""

_RECORDS: Final = "records="


class Epoch(NamedTuple):
    """What one task of a query writes at once, in whatever attempt."""

    query: str
    """The query's group; its transactional ids begin with it."""
    number: int
    task: int

    @property
    def transactional_id(self) -> str:
        return f"{self.query}-{self.task}"

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(EPOCHS_TOPIC, self.task)


def to_commit(epoch: Epoch, records: int) -> dict[TopicPartition, Committed]:
    """Returns the offset that says that the epoch is written."""
    return {epoch.place: Committed(epoch.number, f"{_RECORDS}{records}")}


def written_records(cluster: Cluster, epoch: Epoch) -> int | None:
    """Returns how many records were written; None if the epoch was not, and 0 if nobody knows any more how many.

    To be asked when no earlier attempt can write any more. Raises ClientError or KafkaError.
    """
    found = stable_offset(cluster, epoch.query, epoch.place)
    if found is None or found.offset < epoch.number:
        return None
    told = found.metadata.removeprefix(_RECORDS)
    return int(told) if found.offset == epoch.number and told.isdecimal() else 0


def check_tasks(cluster: Cluster, query: str, number: int, tasks: int) -> None:
    """Looks whether an earlier run of the epoch had more tasks, of which some have written their rows.

    Raises EpochDiffers, ClientError or KafkaError.
    """
    beyond = [
        place.partition
        for place, committed in committed_offsets(cluster, query).items()
        if place.topic == EPOCHS_TOPIC and place.partition >= tasks and committed.offset == number
    ]
    if beyond:
        raise EpochDiffers(
            f"epoch {number} has {tasks} tasks now, and was begun with {max(beyond) + 1} or more, some of which have"
            f" written their rows: these are there twice. {way_out(query)}"
        )


def way_out(query: str) -> str:
    return f"Whoever accepts that deletes the group {query}: then the epoch is written again, and the query goes on"


def ensure_place(cluster: Cluster, epoch: Epoch) -> None:
    """Makes the topic, or more partitions of it, unless there are enough. Raises ClientError or KafkaError."""
    (topic,) = cluster.retrying(lambda: cluster.metadata([EPOCHS_TOPIC])).topics
    is_there = topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if is_there and epoch.task < len(topic.partitions):
        return
    wanted = max(PARTITIONS_MIN, 1 << epoch.task.bit_length())
    try:
        if is_there:
            create_partitions(cluster, EPOCHS_TOPIC, wanted)
        else:
            create_topics(cluster, [NewTopic(EPOCHS_TOPIC, wanted)])
    except KafkaError as error:
        # Another task was quicker.
        if error.code not in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS):
            raise
    cluster.retrying(lambda: _look_for(cluster, epoch.place))


def _look_for(cluster: Cluster, place: TopicPartition) -> None:
    if place not in cluster.partitions(place.topic):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{place}: it is not there yet")
