"""All operations of the admin API. Routes, the OpenAPI document and tests are derived from this table."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from chronik.console.rest.operation import Operation
from chronik.console.rest.shapes.cluster import ClusterView, NewNode, Node, NodeDetails, Stopping
from chronik.console.rest.shapes.common import Done, DryRun, NoBody, Page, Paging, Plan, Searching
from chronik.console.rest.shapes.configs import ConfigChanges, Configs
from chronik.console.rest.shapes.groups import Group, GroupDetails, OffsetMoves, OffsetReset, OffsetsToDelete
from chronik.console.rest.shapes.live import Overview
from chronik.console.rest.shapes.messages import (
    Message,
    Messages,
    NewMessage,
    Produced,
    Progress,
    ReadMessages,
    SearchEnd,
    SearchMessages,
    Skipped,
    TailMessages,
)
from chronik.console.rest.shapes.pipelines import Pipeline, PipelineDetails, Sample, SampleRows
from chronik.console.rest.shapes.security import AclQuestion, Acls, AclShape, NewPassword, Quota, QuotaChange, User
from chronik.console.rest.shapes.session import Login, Session
from chronik.console.rest.shapes.topics import (
    ListTopics,
    LowWatermarks,
    MorePartitions,
    NewTopic,
    RecordsToDelete,
    Topic,
    TopicDetails,
)
from chronik.console.rest.shapes.transactions import Moves, Reassignments, Transactions

CREATED: Final = HTTPStatus.CREATED
NONE: Final = "none"


def _operation(method: str, path: str, does: str, summary: str, rights: str, **more: Any) -> Operation:
    return Operation(method=method, path=path, does=does, summary=summary, rights=rights, **more)


_o: Final = _operation

OPERATIONS: Final = (
    _o("GET", "/session", "session:show", "Tells who is logged in.", NONE, answer=Session, is_open=True),
    _o("POST", "/login", "session:login", "Logs in: the answer sets a cookie.", NONE, body=Login, answer=Session,
       is_open=True),
    _o("POST", "/logout", "session:logout", "Ends the session of the cookie.", NONE, body=NoBody, answer=Done,
       is_open=True),
    _o("GET", "/openapi.json", "session:openapi", "This document.", "a login, where there are logins",
       answer=dict[str, Any]),
    # The cluster
    _o("GET", "/cluster", "cluster:show", "Tells how the cluster is, and what needs attention.", "Describe Cluster",
       answer=ClusterView),
    _o("GET", "/stream", "live:stream", "Tells every two seconds how the cluster is.",
       "Describe Cluster for all but the groups' lag, Describe Group for that", events={"overview": Overview}),
    _o("GET", "/nodes", "nodes:list_all", "Lists the nodes.", "Describe Cluster", query=Paging, answer=Page[Node]),
    _o("POST", "/nodes", "nodes:add", "Lets a node join the cluster.", "Alter Cluster", body=NewNode, answer=Plan),
    _o("GET", "/nodes/{node}", "nodes:show", "Shows a node with its configs and log directories.",
       "Describe Cluster; DescribeConfigs Cluster for its configs", answer=NodeDetails),
    _o("GET", "/nodes/{node}/ok-to-stop", "nodes:ok_to_stop", "Tells whether a node can be stopped without harm.",
       "Describe Cluster", answer=Stopping),
    _o("POST", "/nodes/{node}/drain", "nodes:drain", "Lets a node lead nothing, and get no new replicas.",
       "Alter Cluster", body=DryRun, answer=Plan),
    _o("POST", "/nodes/{node}/undrain", "nodes:undrain", "Lets a drained node lead again.", "Alter Cluster",
       body=DryRun, answer=Plan),
    _o("POST", "/nodes/{node}/remove", "nodes:remove", "Takes a node out of the cluster.", "Alter Cluster", body=DryRun,
       answer=Plan),
    _o("POST", "/nodes/{node}/promote", "nodes:promote", "Makes a node vote.", "Alter Cluster", body=DryRun,
       answer=Plan),
    _o("POST", "/nodes/{node}/demote", "nodes:demote", "Makes a node follow without a vote.", "Alter Cluster",
       body=DryRun, answer=Plan),
    _o("GET", "/nodes/{node}/configs", "configs:of_node", "Lists the configs of a broker.", "DescribeConfigs Cluster",
       answer=Configs),
    _o("PATCH", "/nodes/{node}/configs", "configs:alter_of_node", "Changes configs of a broker.",
       "AlterConfigs Cluster", body=ConfigChanges, answer=Plan),
    _o("GET", "/configs", "configs:of_cluster", "Lists the configs that are set for all brokers.",
       "DescribeConfigs Cluster", answer=Configs),
    _o("PATCH", "/configs", "configs:alter_of_cluster", "Changes configs for all brokers.", "AlterConfigs Cluster",
       body=ConfigChanges, answer=Plan),
    # Topics
    _o("GET", "/topics", "topics:list_all", "Lists topics, by name.", "Describe Topic; others are left out",
       query=ListTopics, answer=Page[Topic]),
    _o("POST", "/topics", "topics:create", "Creates a topic.", "Create Topic, or Create Cluster", body=NewTopic,
       answer=Plan),
    _o("GET", "/topics/{topic}", "topics:show", "Shows a topic and its partitions.", "Describe Topic",
       answer=TopicDetails),
    _o("DELETE", "/topics/{topic}", "topics:delete", "Deletes a topic.", "Delete Topic", answer=Done),
    _o("GET", "/topics/{topic}/configs", "configs:of_topic", "Lists the configs of a topic.", "DescribeConfigs Topic",
       answer=Configs),
    _o("PATCH", "/topics/{topic}/configs", "configs:alter_of_topic", "Changes configs of a topic.",
       "AlterConfigs Topic", body=ConfigChanges, answer=Plan),
    _o("POST", "/topics/{topic}/partitions", "topics:add_partitions", "Gives a topic more partitions.", "Alter Topic",
       body=MorePartitions, answer=Plan),
    _o("POST", "/topics/{topic}/records/delete", "topics:delete_records", "Deletes the oldest records of partitions.",
       "Delete Topic", body=RecordsToDelete, answer=LowWatermarks),
    # Messages
    _o("GET", "/topics/{topic}/messages", "messages:read", "Reads messages.", "Read Topic", query=ReadMessages,
       answer=Messages, reads_topic="topic"),
    _o("POST", "/topics/{topic}/messages", "messages:produce", "Produces a message.", "Write Topic", body=NewMessage,
       answer=Produced, status=CREATED),
    _o("GET", "/topics/{topic}/search", "searching:search", "Looks for a text in messages, within a budget.",
       "Read Topic", query=SearchMessages, events={"match": Message, "progress": Progress, "end": SearchEnd},
       reads_topic="topic"),
    _o("GET", "/topics/{topic}/tail", "searching:tail", "Tells of messages as they come.", "Read Topic",
       query=TailMessages, events={"message": Message, "skipped": Skipped}, reads_topic="topic"),
    # Groups
    _o("GET", "/groups", "groups:list_all", "Lists consumer groups, by name.", "Describe Group; others are left out",
       query=Searching, answer=Page[Group]),
    _o("GET", "/groups/{group}", "groups:show", "Shows a group, its members and its offsets.", "Describe Group",
       answer=GroupDetails),
    _o("DELETE", "/groups/{group}", "groups:delete", "Deletes a group that has no members.", "Delete Group",
       answer=Done),
    _o("POST", "/groups/{group}/offsets", "groups:reset", "Moves the offsets of a group that has no members.",
       "Read Group, Describe Topic and Read Topic", body=OffsetReset, answer=OffsetMoves),
    _o("DELETE", "/groups/{group}/offsets", "groups:delete_offsets", "Deletes offsets of a group.",
       "Delete Group, Read Topic", query=OffsetsToDelete, answer=Done),
    # Transactions and moves
    _o("GET", "/transactions", "transactions:list_all", "Lists transactions, and who holds the last stable offset.",
       "Describe TransactionalId; others are left out", query=Searching, answer=Transactions),
    _o("POST", "/transactions/{transactional_id}/abort", "transactions:abort", "Aborts an open transaction.",
       "Describe and Write TransactionalId", body=DryRun, answer=Plan),
    _o("GET", "/reassignments", "reassignments:list_all", "Lists partitions that are being moved.", "Describe Cluster",
       answer=Moves),
    _o("POST", "/reassignments", "reassignments:start", "Moves partitions, or calls moves off.", "Alter Cluster",
       body=Reassignments, answer=Plan),
    # Security
    _o("GET", "/users", "users:list_all", "Lists users with passwords.", "Describe Cluster", query=Searching,
       answer=Page[User]),
    _o("POST", "/users", "users:put", "Makes a user, or gives one another password.", "Alter Cluster",
       body=NewPassword, answer=User, status=CREATED),
    _o("DELETE", "/users/{user}", "users:delete", "Takes all passwords away from a user.", "Alter Cluster",
       answer=Done),
    _o("GET", "/acls", "acls:list_all", "Lists ACLs.", "Describe Cluster", query=AclQuestion, answer=Page[AclShape]),
    _o("POST", "/acls", "acls:add", "Adds ACLs.", "Alter Cluster", body=Acls, answer=Acls, status=CREATED),
    _o("POST", "/acls/delete", "acls:delete", "Deletes exactly these ACLs, and answers with those that are gone.",
       "Alter Cluster", body=Acls, answer=Page[AclShape]),
    _o("GET", "/quotas", "quotas:list_all", "Lists quotas.", "DescribeConfigs Cluster", query=Paging,
       answer=Page[Quota]),
    _o("PUT", "/quotas", "quotas:put", "Sets or removes quotas of a user, a client id or an address.",
       "AlterConfigs Cluster", body=QuotaChange, answer=Done),
    # Pipelines
    _o("GET", "/pipelines", "pipelines:list_all", "Lists pipelines, as their drivers tell of them.",
       "Read Topic __chronik_pipelines", query=Searching, answer=Page[Pipeline]),
    _o("GET", "/pipelines/{pipeline}", "pipelines:show", "Shows a pipeline.", "Read Topic __chronik_pipelines",
       answer=PipelineDetails),
    _o("GET", "/pipelines/{pipeline}/sample", "pipelines:sample", "Has a driver show some rows of a topic's table.",
       "Read Topic, and Read Topic __chronik_pipelines", query=SampleRows, answer=Sample,
       reads_topic="topic"),
)  # fmt: skip
