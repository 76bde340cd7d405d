from __future__ import annotations

from pathlib import Path

import pytest

from chronik.cli.apply.cluster_spec import ClusterSpec, PasswordSource, TopicSpec, UserSpec
from chronik.cli.apply.parser import load_spec, parse_spec
from chronik.cli.apply.toml_document import find_line_number
from chronik.client.security import AclBinding
from chronik.errors import ConfigError
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.security.acls import AclPermission, PatternType

EVERYTHING = """
[broker]
"message.max.bytes" = 2_000_000
log.retention.ms = 86400000

[topics.orders]
partitions = 6
replication_factor = 3
configs = { "retention.ms" = 1000, cleanup.policy = ["compact", "delete"], preallocate = true }

[topics."orders.late"]

[topics.orders-dead.configs]
"min.cleanable.dirty.ratio" = 0.5

[users.alice]
password_file = "alice.password"

[users."CN=bob"]
mechanisms = { SCRAM-SHA-512 = 8192 }
password_env = "BOB_PASSWORD"

[users.carol]
mechanisms = ["SCRAM-SHA-256"]

[[acls]]
principal = "User:alice"
topic = "orders"
pattern = "prefixed"
operations = ["Read", "DescribeConfigs"]

[[acls]]
principal = "User:*"
cluster = true
operations = ["All"]
host = "10.0.0.1"
permission = "deny"

[[quotas]]
user = "alice"
default_client_id = true
producer_byte_rate = 1_000_000
request_percentage = 12.5
"""


def test_parser_accepts_all_sections_and_keys() -> None:
    topic, cluster = AclResourceType.TOPIC, AclResourceType.CLUSTER
    prefixed, literal = PatternType.PREFIXED, PatternType.LITERAL
    ratio = {"min.cleanable.dirty.ratio": "0.5"}
    configs = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "preallocate": "true"}
    assert parse_spec(EVERYTHING, "file") == ClusterSpec(
        topics={
            "orders": TopicSpec(6, 3, configs),
            "orders.late": TopicSpec(),
            "orders-dead": TopicSpec(configs=ratio),
        },
        broker={"message.max.bytes": "2000000", "log.retention.ms": "86400000"},
        users={
            "alice": UserSpec({"SCRAM-SHA-256": None, "SCRAM-SHA-512": None}, PasswordSource(file="alice.password")),
            "CN=bob": UserSpec({"SCRAM-SHA-512": 8192}, PasswordSource(variable="BOB_PASSWORD")),
            "carol": UserSpec({"SCRAM-SHA-256": None}),
        },
        acls=frozenset(
            {
                AclBinding(topic, "orders", prefixed, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW),
                AclBinding(
                    topic, "orders", prefixed, "User:alice", "*", AclOperation.DESCRIBE_CONFIGS, AclPermission.ALLOW
                ),
                AclBinding(
                    cluster, "kafka-cluster", literal, "User:*", "10.0.0.1", AclOperation.ALL, AclPermission.DENY
                ),
            }
        ),
        quotas={
            (("client-id", None), ("user", "alice")): {"producer_byte_rate": 1_000_000.0, "request_percentage": 12.5}
        },
    )


def test_missing_section_is_none_and_empty_section_is_empty() -> None:
    assert parse_spec("", "file") == ClusterSpec()
    assert parse_spec("acls = []\nquotas = []\n[topics]\n[broker]\n[users]", "file") == ClusterSpec(
        {}, {}, {}, frozenset(), {}
    )


ACL = '[[acls]]\nprincipal = "User:a"\noperations = ["Read"]\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topics = 5", "file:1: topics = 5: expected a table"),
        ("\n[topcis.a]", "file:2: topcis: unknown key; did you mean 'topics'?"),
        ("\n[xyz.a]", "file:2: xyz: unknown key; expected one of topics, broker, users, acls, quotas"),
        ("[topics.a]\npartition = 3", "file:2: topics.a.partition: unknown key; did you mean 'partitions'"),
        ("[topics.a.b]\n", "file:1: topics.a.b: unknown key; .*; names with dots must be quoted"),
        ("[topics.a]\n\npartitions = 0", "file:3: topics.a.partitions = 0: expected an integer from 1 to 10000"),
        ("[topics.a]\npartitions = '3'", "file:2: topics.a.partitions = '3': expected an integer"),
        ("[topics.a]\npartitions = true", "topics.a.partitions = True: expected an integer"),
        ("[topics.a]\nreplication_factor = 40000", "expected an integer from 1 to 32767"),
        ('[topics."a b"]', """file:1: topics."a b": the topic name 'a b' has characters other"""),
        ("[topics.__consumer_offsets]", "file:1: topics.__consumer_offsets: topics whose names start with __ are int"),
        ('[topics."a.b"]\n[topics.a_b]', "file:2: topics.a_b: differs from topic a.b only in '.' and '_'"),
        ("[topics.a.configs]\n'retention.mss' = 1", 'file:2: topics.a.configs."retention.mss": unknown topic config'),
        ("[topics.a.configs]\nretention.ms = 'x'", "file:2: topics.a.configs.\"retention.ms\" = 'x': expected a whole"),
        ("[topics.a.configs]\nretention.ms = [1]", r"= \[1\]: expected a string, a number, a boolean, or an array"),
        ("[topics.a.configs]\nleader.replication.throttled.replicas = '*'", "is set by partition reassignments"),
        ("[broker]\nnode.id = 1", 'file:2: broker."node.id": cannot be changed dynamically for all brokers'),
        ("[broker]\nssl.key.password = 'hunter2'", 'file:2: broker."ssl.key.password": is sensitive and cannot be set'),
        ("[broker]\nno.such = 1", 'file:2: broker."no.such": unknown broker config'),
        ("[broker]\nmessage.max.bytes = -1", 'file:2: broker."message.max.bytes" = -1: expected'),
        ("[users.a]\npassword = 'hunter2'", "file:2: users.a.password: passwords are not allowed in this file"),
        ("[users.a]\npassword_file = 5", "file:2: users.a.password_file: expected a string"),
        ("[users.a]\npassword_env = 'hunter 2'", "file:2: users.a.password_env: expected the name of an environment"),
        ("[users.a]\npassword_env = 'A'\npassword_file = 'f'", "file:2: users.a.password_env: cannot be combined with"),
        ("[users.a]\nmechanisms = ['PLAIN']", 'file:2: users.a.mechanisms: expected "SCRAM-SHA-256" or "SCRAM-SHA-5'),
        ("[users.a]\nmechanisms = []", "file:2: users.a.mechanisms: expected at least one of SCRAM-SHA-256, SCRAM"),
        ("[users.a]\nmechanisms = 'SCRAM-SHA-256'", "file:2: users.a.mechanisms: expected an array of SCRAM-SHA-256"),
        ("[users.a]\nmechanisms.SCRAM-SHA-256 = 5", "users.a.mechanisms.SCRAM-SHA-256: expected an integer from 4"),
        ("[users]\na = 'hunter2'", "file:2: users.a: expected a table"),
        ("[users.'']", 'users."": user names must have 1 to 1024 characters'),
        ("[acls]", r"file:1: acls = {}: expected an array of tables: \[\[acls\]\]"),
        (ACL, "file:1: acls no. 1: expected one of topic, group, transactional_id, delegation_token, user_principal, "),
        (f"{ACL}topic = 'a'\n{ACL}topic = 5", "file:8: acls no. 2: topic = 5: expected a string"),
        (f"{ACL}topic = 'a'\ngroup = 'b'", "file:1: acls no. 1: expected one of topic, group"),
        (f"{ACL}cluster = false", "file:4: acls no. 1: cluster = False: expected true"),
        (f"{ACL}cluster = true\npattern = 'literal'", "file:5: acls no. 1: pattern: cannot be combined with cluster"),
        (f"{ACL}topic = 'a'\npattern = 'any'", 'pattern = \'any\': expected "literal" or "prefixed"'),
        (f"{ACL}topic = 'a'\npermission = 'Allow'", 'permission = \'Allow\': expected "allow" or "deny"'),
        ("[[acls]]\ntopic = 'a'", "file:1: acls no. 1: principal is missing"),
        ("[[acls]]\nprincipal = 'User:a'", "file:1: acls no. 1: operations is missing"),
        (ACL.replace("Read", "Reed") + "topic = 'a'", "file:3: acls no. 1: operations: unknown operation 'Reed'"),
        (ACL.replace("User:a", "alice") + "topic = 'a'", "acls no. 1: Could not parse principal from `alice`"),
        ("[[acls]]\nprincipal = 'User:a'\ntopic = 'b'\noperations = 'Read'", "expected an array of operations"),
        ("[[quotas]]\nproducer_byte_rate = 1", "file:1: quotas no. 1: expected one of user, client_id, ip, or a def"),
        ("[[quotas]]\nuser = 'a'", "file:1: quotas no. 1: expected at least one of producer_byte_rate"),
        ("[[quotas]]\nuser = 'a'\ndefault_user = true\n", "quotas no. 1: default_user: cannot be combined with user"),
        ("[[quotas]]\ndefault_user = false", "file:2: quotas no. 1: default_user = False: expected true"),
        ("[[quotas]]\nuser = 'a'\nproducer_byte_rate = '1M'", "producer_byte_rate = '1M': expected a number greater"),
        ("[[quotas]]\nuser = 'a'\nproducer_byte_rate = 0", "producer_byte_rate: Quota producer_byte_rate must be gre"),
        (f"[[quotas]]\nuser = 'a'\nrequest_percentage = 1{'0' * 400}", "expected a smaller number"),
        ("[[quotas]]\nip = 'nowhere'\nconnection_creation_rate = 1", "quotas no. 1: nowhere is not a valid IP"),
        ("[[quotas]]\nuser = 'a'\nconnection_creation_rate = 1", "connection_creation_rate: Invalid configuration k"),
        (2 * "[[quotas]]\nuser = 'a'\nproducer_byte_rate = 1\n", "file:4: quotas no. 2: duplicate entry for the same"),
        ("\n[topics\n", r"file: not valid TOML: .*line 2"),
        ("a = " + "9" * 5000, "file: not valid TOML: an integer has thousands of digits"),
    ],
)
def test_parse_error_is_one_line_with_file_and_line_number(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as raised:
        parse_spec(text, "file")
    assert "\n" not in str(raised.value)
    assert "hunter" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_line_number_is_found_for_every_toml_notation() -> None:
    lines = (
        "acls = [",
        '  {principal = "a"},',
        "]",
        "[topics]",
        "b.partitions = 1",
        '"c.d" = {',
        " partitions = 2}",
        "[topics.e.configs]",
    )
    text = "\n".join(lines)
    assert find_line_number(text, ("acls", 0, "principal")) == 1
    assert find_line_number(text, ("topics", "b", "partitions")) == 5
    assert find_line_number(text, ("topics", "c.d", "partitions")) == 6
    assert find_line_number(text, ("topics", "e")) == 8
    assert find_line_number(text, ("users", "e")) is None


def test_unreadable_file_raises_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: No such file"):
        load_spec(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"a = '\xe9'")
    with pytest.raises(ConfigError, match=r"latin.toml: not valid TOML: it is not UTF-8"):
        load_spec(tmp_path / "latin.toml")
