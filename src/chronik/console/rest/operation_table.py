"""All operations of the admin API, and how an operation is declared.

Routes, checks, the OpenAPI document and tests are derived from this table.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec

from chronik.console.rest.models.cluster import (
    ClusterView,
    ConfigChanges,
    Configs,
    Health,
    NewNode,
    Node,
    NodeDetails,
    Overview,
    Stopping,
)
from chronik.console.rest.models.common import Done, DryRun, NoBody, NoQuestion, Page, Paging, Plan, Searching
from chronik.console.rest.models.groups import (
    Group,
    GroupDetails,
    ListGroups,
    OffsetMoves,
    OffsetReset,
    OffsetsToDelete,
    TopicConsumers,
)
from chronik.console.rest.models.history import History, HistoryParameters
from chronik.console.rest.models.messages import (
    ExportMessages,
    Message,
    Messages,
    NewMessage,
    Produced,
    Progress,
    ReadMessages,
    ReadValue,
    SearchEnd,
    SearchMessages,
    Skipped,
    TailMessages,
)
from chronik.console.rest.models.pipelines import Pipeline, PipelineDetails, Sample, SampleRows
from chronik.console.rest.models.security import (
    AclAdditions,
    AclFields,
    AclImport,
    AclQuestion,
    Acls,
    AclShape,
    ConsumerAcls,
    ImportedAcls,
    LoggedOut,
    Login,
    NewPassword,
    Permissions,
    PermissionsQuestion,
    ProducerAcls,
    Quota,
    QuotaChange,
    Session,
    User,
)
from chronik.console.rest.models.statistics import StatisticsProgress, StatisticsQuery, TopicStatistics
from chronik.console.rest.models.topics import (
    ListTopics,
    LowWatermarks,
    MorePartitions,
    NewTopic,
    RecordsToDelete,
    Topic,
    TopicDetails,
)
from chronik.console.rest.models.transactions import Moves, Placement, PlacementQuery, Reassignments, Transactions

BASE_PATH: Final = "/api/v1"

PATH_PARAMETERS: Final[dict[str, tuple[Any, str]]] = {
    "topic": (str, "The name of a topic."),
    "group": (str, "The id of a consumer group."),
    "node": (Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)], "The id of a node."),
    "transactional_id": (str, "A transactional id."),
    "user": (str, "The name of a user, without the prefix User:."),
    "pipeline": (str, "The name of a pipeline."),
    "partition": (Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)], "The number of a partition."),
    "offset": (Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)], "The offset of a message."),
}

CREATED: Final = HTTPStatus.CREATED
NONE: Final = "none"


class RestOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of the admin API: its HTTP method, path, parameters and handler."""

    method: str
    path: str
    """The path below BASE. Names in braces are keys of PATH_PARAMETERS."""
    handler: str
    """The module in `chronik.console.rest.operations` and the function that implement the operation, such as
    "topics:create". The module is imported on first use."""
    summary: str
    """The description of the operation, one sentence."""
    permissions: str
    """The required permissions, for documentation only. The node's request handlers enforce them."""
    query: type[msgspec.Struct] = NoQuestion
    body: type[msgspec.Struct] | None = None
    response: Any = None
    events: dict[str, Any] | None = None
    """The payload type of each server-sent event, if the response is a stream."""
    media_types: tuple[str, ...] = ()
    """The media types of the response, if it is a file; `response` is bytes then."""
    is_streamed: bool = False
    """Whether the response is a file that is produced while it is downloaded."""
    reads_topic: str = ""
    """Name of the path or query parameter that holds the topic whose records are returned. The Read permission on that
    topic is checked again before each part of the response."""
    status: HTTPStatus = HTTPStatus.OK
    is_public: bool = False
    """Whether the operation is available without authentication."""

    @property
    def id(self) -> str:
        """The operation's id in the OpenAPI document."""
        return self.handler.replace(":", "_")

    @property
    def tag(self) -> str:
        """The operation's tag in the OpenAPI document: the module that implements it."""
        return self.handler.partition(":")[0]

    @property
    def parameters(self) -> list[str]:
        """The names of the operation's path parameters."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def is_mutation(self) -> bool:
        """Whether the operation changes the state of the cluster or of a session."""
        return self.method != "GET"


def _create_operation(
    method: str, path: str, handler: str, summary: str, permissions: str, **fields: Any
) -> RestOperation:
    return RestOperation(method=method, path=path, handler=handler, summary=summary, permissions=permissions, **fields)


_o: Final = _create_operation

OPERATIONS: Final = (
    _o("GET", "/session", "session:show", "Return the login status of the client.", NONE, response=Session,
       is_public=True),
    _o("GET", "/permissions", "session:permissions", "List the operations that the principal may perform.",
       "a login, if logins are required", query=PermissionsQuestion, response=Permissions),
    _o("POST", "/login", "session:login", "Log in: the response sets a session cookie.", NONE, body=Login,
       response=Session, is_public=True),
    _o("POST", "/logout", "session:logout", "Log out: end the session of the cookie.", NONE, body=NoBody,
       response=LoggedOut, is_public=True),
    _o("GET", "/openapi.json", "session:openapi", "Return this OpenAPI document.", "a login, if logins are required",
       response=dict[str, Any]),
    # Cluster
    _o("GET", "/cluster", "cluster:show", "Describe the state of the cluster, and what needs attention.",
       "Describe Cluster", response=ClusterView),
    _o("GET", "/health", "cluster:health", "List the problems of the cluster, the most severe first.",
       "Describe Cluster; names of groups and transactional ids need Describe, those of pipelines Read Topic "
       "__chronik_pipelines", response=Health),
    _o("GET", "/history", "history:show", "Return the values of metrics over a time range of the last 24 hours.",
       "Describe Cluster for metrics of nodes, Describe Topic and Describe Group for others; topics and groups without "
       "them are omitted", query=HistoryParameters, response=History),
    _o("GET", "/stream", "live:stream", "Stream the state of the cluster every two seconds.",
       "Describe Cluster; Describe Group for the groups' lag", events={"overview": Overview}),
    _o("GET", "/nodes", "nodes:list_all", "List the nodes.", "Describe Cluster", query=Paging, response=Page[Node]),
    _o("POST", "/nodes", "nodes:add", "Add a node to the cluster.", "Alter Cluster", body=NewNode, response=Plan),
    _o("GET", "/nodes/{node}", "nodes:show", "Describe a node with its configs and log directories.",
       "Describe Cluster; DescribeConfigs Cluster for its configs", response=NodeDetails),
    _o("GET", "/nodes/{node}/ok-to-stop", "nodes:ok_to_stop", "Check whether a node can be stopped safely.",
       "Describe Cluster", response=Stopping),
    _o("POST", "/nodes/{node}/drain", "nodes:drain",
       "Drain a node: move its leaderships away and assign it no new replicas.", "Alter Cluster", body=DryRun,
       response=Plan),
    _o("POST", "/nodes/{node}/undrain", "nodes:undrain", "Undrain a node: let it lead partitions again.",
       "Alter Cluster", body=DryRun, response=Plan),
    _o("POST", "/nodes/{node}/remove", "nodes:remove", "Remove a node from the cluster.", "Alter Cluster", body=DryRun,
       response=Plan),
    _o("POST", "/nodes/{node}/promote", "nodes:promote", "Make a node a voter of the Raft quorum.", "Alter Cluster",
       body=DryRun, response=Plan),
    _o("POST", "/nodes/{node}/demote", "nodes:demote",
       "Make a node an observer: it follows the Raft log without a vote.", "Alter Cluster", body=DryRun, response=Plan),
    _o("GET", "/nodes/{node}/configs", "configs:of_node", "List the configs of a broker.", "DescribeConfigs Cluster",
       response=Configs),
    _o("PATCH", "/nodes/{node}/configs", "configs:alter_of_node", "Alter the configs of a broker.",
       "AlterConfigs Cluster", body=ConfigChanges, response=Plan),
    _o("GET", "/configs", "configs:of_cluster", "List the cluster-wide default configs of all brokers.",
       "DescribeConfigs Cluster", response=Configs),
    _o("PATCH", "/configs", "configs:alter_of_cluster", "Alter the cluster-wide default configs of all brokers.",
       "AlterConfigs Cluster", body=ConfigChanges, response=Plan),
    # Topics
    _o("GET", "/topics", "topics:list_all", "List topics by name.", "Describe Topic; other topics are omitted",
       query=ListTopics, response=Page[Topic]),
    _o("POST", "/topics", "topics:create", "Create a topic.", "Create Topic, or Create Cluster", body=NewTopic,
       response=Plan),
    _o("GET", "/topics/{topic}", "topics:show", "Describe a topic and its partitions.", "Describe Topic",
       response=TopicDetails),
    _o("DELETE", "/topics/{topic}", "topics:delete", "Delete a topic.", "Delete Topic", response=Done),
    _o("GET", "/topics/{topic}/configs", "configs:of_topic", "List the configs of a topic.", "DescribeConfigs Topic",
       response=Configs),
    _o("PATCH", "/topics/{topic}/configs", "configs:alter_of_topic", "Alter the configs of a topic.",
       "AlterConfigs Topic", body=ConfigChanges, response=Plan),
    _o("POST", "/topics/{topic}/partitions", "topics:add_partitions", "Increase the number of partitions of a topic.",
       "Alter Topic", body=MorePartitions, response=Plan),
    _o("POST", "/topics/{topic}/records/delete", "topics:delete_records", "Delete the records before given offsets.",
       "Delete Topic", body=RecordsToDelete, response=LowWatermarks),
    _o("GET", "/topics/{topic}/consumers", "consumers:list_all", "List the consumer groups of a topic by name.",
       "Describe Topic; groups without Describe Group are omitted", query=Searching, response=TopicConsumers),
    _o("GET", "/topics/{topic}/statistics", "statistics:compute",
       "Compute statistics of a topic's records, up to a limit.", "Read Topic", query=StatisticsQuery,
       events={"progress": StatisticsProgress, "statistics": TopicStatistics}, reads_topic="topic"),
    # Messages
    _o("GET", "/topics/{topic}/messages", "messages:read", "Read messages.", "Read Topic", query=ReadMessages,
       response=Messages, reads_topic="topic"),
    _o("POST", "/topics/{topic}/messages", "messages:produce", "Produce a message.", "Write Topic", body=NewMessage,
       response=Produced, status=CREATED),
    _o("GET", "/topics/{topic}/messages/{partition}/{offset}/value", "messages:value",
       "Download a key, a value or a header value of any size.", "Read Topic", query=ReadValue, response=bytes,
       media_types=("application/octet-stream", "application/json"), reads_topic="topic"),
    _o("GET", "/topics/{topic}/export", "exports:export", "Download messages as JSON lines, CSV or Parquet.",
       "Read Topic", query=ExportMessages, response=bytes,
       media_types=("application/jsonl", "text/csv; charset=utf-8", "application/vnd.apache.parquet"),
       is_streamed=True, reads_topic="topic"),
    _o("GET", "/topics/{topic}/search", "searching:search", "Search messages for a text, up to a limit.", "Read Topic",
       query=SearchMessages, events={"match": Message, "progress": Progress, "end": SearchEnd}, reads_topic="topic"),
    _o("GET", "/topics/{topic}/tail", "searching:tail", "Stream new messages as they arrive.", "Read Topic",
       query=TailMessages, events={"message": Message, "skipped": Skipped}, reads_topic="topic"),
    # Groups
    _o("GET", "/groups", "groups:list_all", "List consumer groups by name.", "Describe Group; other groups are omitted",
       query=ListGroups, response=Page[Group]),
    _o("GET", "/groups/{group}", "groups:show", "Describe a group, its members and its offsets.", "Describe Group",
       response=GroupDetails),
    _o("DELETE", "/groups/{group}", "groups:delete", "Delete a group without members.", "Delete Group", response=Done),
    _o("POST", "/groups/{group}/offsets", "groups:reset", "Reset the committed offsets of a group without members.",
       "Read Group, Describe Topic and Read Topic", body=OffsetReset, response=OffsetMoves),
    _o("DELETE", "/groups/{group}/offsets", "groups:delete_offsets", "Delete committed offsets of a group.",
       "Delete Group, Read Topic", query=OffsetsToDelete, response=Done),
    # Transactions and reassignments
    _o("GET", "/transactions", "transactions:list_all",
       "List transactions, and the producers that hold back last stable offsets.",
       "Describe TransactionalId; other ids are omitted", query=Searching, response=Transactions),
    _o("POST", "/transactions/{transactional_id}/abort", "transactions:abort", "Abort an open transaction.",
       "Describe and Write TransactionalId", body=DryRun, response=Plan),
    _o("GET", "/reassignments", "reassignments:list_all", "List the partition reassignments in progress.",
       "Describe Cluster", response=Moves),
    _o("POST", "/reassignments", "reassignments:start", "Reassign partitions, or cancel reassignments.",
       "Alter Cluster", body=Reassignments, response=Plan),
    _o("GET", "/topics/{topic}/placement", "reassignments:plan",
       "Plan the reassignment of a topic to given nodes, without changing anything.",
       "Describe Topic, Describe Cluster", query=PlacementQuery, response=Placement),
    # Security
    _o("GET", "/users", "users:list_all", "List users with SCRAM credentials.", "Describe Cluster", query=Searching,
       response=Page[User]),
    _o("POST", "/users", "users:put", "Create a user, or change a user's password.", "Alter Cluster", body=NewPassword,
       response=User, status=CREATED),
    _o("DELETE", "/users/{user}", "users:delete", "Delete a user: remove all SCRAM credentials.", "Alter Cluster",
       response=Done),
    _o("GET", "/acls", "acls:list_all", "List ACLs.", "Describe Cluster", query=AclQuestion, response=Page[AclShape]),
    _o("POST", "/acls", "acls:add", "Create ACLs.", "Alter Cluster", body=Acls, response=Acls, status=CREATED),
    _o("POST", "/acls/delete", "acls:delete", "Delete exactly these ACLs, and return the deleted ones.",
       "Alter Cluster", body=Acls, response=Page[AclShape]),
    _o("POST", "/acls/producer", "acls:add_producer",
       "Create the ACLs of a producer that do not exist: those of `kafka-acls.sh --producer`.",
       "Alter Cluster, Describe Cluster", body=ProducerAcls, response=AclAdditions),
    _o("POST", "/acls/consumer", "acls:add_consumer",
       "Create the ACLs of a consumer that do not exist: those of `kafka-acls.sh --consumer`.",
       "Alter Cluster, Describe Cluster", body=ConsumerAcls, response=AclAdditions),
    _o("GET", "/acls/export", "acls:export_csv", "Download ACLs as CSV.", "Describe Cluster", query=AclFields,
       response=bytes, media_types=("text/csv; charset=utf-8",)),
    _o("POST", "/acls/import", "acls:import_csv",
       "Create the ACLs of a CSV file that do not exist, unless a line is invalid. No ACLs are deleted.",
       "Alter Cluster, Describe Cluster", body=AclImport, response=ImportedAcls),
    _o("GET", "/quotas", "quotas:list_all", "List quotas.", "DescribeConfigs Cluster", query=Paging,
       response=Page[Quota]),
    _o("PUT", "/quotas", "quotas:put", "Set or remove quotas of a user, a client id or an IP address.",
       "AlterConfigs Cluster", body=QuotaChange, response=Done),
    # Pipelines
    _o("GET", "/pipelines", "pipelines:list_all", "List pipelines, as reported by their drivers.",
       "Read Topic __chronik_pipelines", query=Searching, response=Page[Pipeline]),
    _o("GET", "/pipelines/{pipeline}", "pipelines:show", "Describe a pipeline.", "Read Topic __chronik_pipelines",
       response=PipelineDetails),
    _o("GET", "/pipelines/{pipeline}/sample", "pipelines:sample",
       "Return sample rows of a topic's table, read by the driver.", "Read Topic, and Read Topic __chronik_pipelines",
       query=SampleRows, response=Sample, reads_topic="topic"),
)  # fmt: skip
