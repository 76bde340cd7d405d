from __future__ import annotations

from pathlib import Path

import pytest

from chronik.cli.applying.places import line_of
from chronik.cli.applying.reading import parse_state, read_file
from chronik.cli.applying.state import PasswordSource, State, Topic, User
from chronik.client.security.acls import AclBinding
from chronik.errors import ConfigError
from chronik.protocol.permissions import Operation, ResourceType
from chronik.security.acls import PatternType, Permission

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


def test_everything_that_a_file_can_say_is_understood() -> None:
    topic, cluster = ResourceType.TOPIC, ResourceType.CLUSTER
    prefixed, literal = PatternType.PREFIXED, PatternType.LITERAL
    ratio = {"min.cleanable.dirty.ratio": "0.5"}
    configs = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "preallocate": "true"}
    assert parse_state(EVERYTHING, "file") == State(
        topics={"orders": Topic(6, 3, configs), "orders.late": Topic(), "orders-dead": Topic(configs=ratio)},
        broker={"message.max.bytes": "2000000", "log.retention.ms": "86400000"},
        users={
            "alice": User({"SCRAM-SHA-256": None, "SCRAM-SHA-512": None}, PasswordSource(file="alice.password")),
            "CN=bob": User({"SCRAM-SHA-512": 8192}, PasswordSource(variable="BOB_PASSWORD")),
            "carol": User({"SCRAM-SHA-256": None}),
        },
        acls=frozenset(
            {
                AclBinding(topic, "orders", prefixed, "User:alice", "*", Operation.READ, Permission.ALLOW),
                AclBinding(topic, "orders", prefixed, "User:alice", "*", Operation.DESCRIBE_CONFIGS, Permission.ALLOW),
                AclBinding(cluster, "kafka-cluster", literal, "User:*", "10.0.0.1", Operation.ALL, Permission.DENY),
            }
        ),
        quotas={
            (("client-id", None), ("user", "alice")): {"producer_byte_rate": 1_000_000.0, "request_percentage": 12.5}
        },
    )


def test_an_empty_file_speaks_of_nothing_and_empty_parts_of_none() -> None:
    assert parse_state("", "file") == State()
    assert parse_state("acls = []\nquotas = []\n[topics]\n[broker]\n[users]", "file") == State(
        {}, {}, {}, frozenset(), {}
    )


ACL = '[[acls]]\nprincipal = "User:a"\noperations = ["Read"]\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("topics = 5", "file:1: topics = 5: expected a table"),
        ("\n[topcis.a]", "file:2: topcis: unknown key; did you mean 'topics'?"),
        ("\n[xyz.a]", "file:2: xyz: unknown key; expected one of topics, broker, users, acls, quotas"),
        ("[topics.a]\npartition = 3", "file:2: topics.a.partition: unknown key; did you mean 'partitions'"),
        ("[topics.a.b]\n", "file:1: topics.a.b: unknown key; .*; a name with dots needs quotes"),
        ("[topics.a]\n\npartitions = 0", "file:3: topics.a.partitions = 0: expected a whole number from 1 to 10000"),
        ("[topics.a]\npartitions = '3'", "file:2: topics.a.partitions = '3': expected a whole number"),
        ("[topics.a]\npartitions = true", "topics.a.partitions = True: expected a whole number"),
        ("[topics.a]\nreplication_factor = 40000", "expected a whole number from 1 to 32767"),
        ('[topics."a b"]', """file:1: topics."a b": the topic name 'a b' has characters other"""),
        ("[topics.__consumer_offsets]", "file:1: topics.__consumer_offsets: topics whose names begin with __ are int"),
        ('[topics."a.b"]\n[topics.a_b]', "file:2: topics.a_b: differs from topic a.b in '.' and '_' only"),
        ("[topics.a.configs]\n'retention.mss' = 1", 'file:2: topics.a.configs."retention.mss": unknown topic config'),
        ("[topics.a.configs]\nretention.ms = 'x'", "file:2: topics.a.configs.\"retention.ms\" = 'x': expected a whole"),
        ("[topics.a.configs]\nretention.ms = [1]", r"= \[1\]: expected a text, a number, true or false, or an array"),
        ("[topics.a.configs]\nleader.replication.throttled.replicas = '*'", "is set by moves of partitions while"),
        ("[broker]\nnode.id = 1", 'file:2: broker."node.id": cannot be changed for all brokers while they run'),
        ("[broker]\nssl.key.password = 'hunter2'", 'file:2: broker."ssl.key.password": is a secret, which does not'),
        ("[broker]\nno.such = 1", 'file:2: broker."no.such": unknown broker config'),
        ("[broker]\nmessage.max.bytes = -1", 'file:2: broker."message.max.bytes" = -1: expected'),
        ("[users.a]\npassword = 'hunter2'", "file:2: users.a.password: a password does not belong into this file"),
        ("[users.a]\npassword_file = 5", "file:2: users.a.password_file: expected a text"),
        ("[users.a]\npassword_env = 'hunter 2'", "file:2: users.a.password_env: expected the name of a variable"),
        ("[users.a]\npassword_env = 'A'\npassword_file = 'f'", "file:2: users.a.password_env: expected no password_f"),
        ("[users.a]\nmechanisms = ['PLAIN']", 'file:2: users.a.mechanisms: expected "SCRAM-SHA-256" or "SCRAM-SHA-5'),
        ("[users.a]\nmechanisms = []", "file:2: users.a.mechanisms: expected at least one of SCRAM-SHA-256, SCRAM"),
        ("[users.a]\nmechanisms = 'SCRAM-SHA-256'", "file:2: users.a.mechanisms: expected an array of SCRAM-SHA-256"),
        ("[users.a]\nmechanisms.SCRAM-SHA-256 = 5", "users.a.mechanisms.SCRAM-SHA-256: expected a whole number from 4"),
        ("[users]\na = 'hunter2'", "file:2: users.a: expected a table"),
        ("[users.'']", 'users."": a user\'s name has 1 to 1024 characters'),
        ("[acls]", r"file:1: acls = {}: expected an array of tables: \[\[acls\]\]"),
        (ACL, "file:1: acls no. 1: expected one of topic, group, transactional_id, delegation_token, user_principal a"),
        (f"{ACL}topic = 'a'\n{ACL}topic = 5", "file:8: acls no. 2: topic = 5: expected a text"),
        (f"{ACL}topic = 'a'\ngroup = 'b'", "file:1: acls no. 1: expected one of topic, group"),
        (f"{ACL}cluster = false", "file:4: acls no. 1: cluster = False: expected true"),
        (f"{ACL}cluster = true\npattern = 'literal'", "file:5: acls no. 1: pattern: expected none beside cluster"),
        (f"{ACL}topic = 'a'\npattern = 'any'", 'pattern = \'any\': expected "literal" or "prefixed"'),
        (f"{ACL}topic = 'a'\npermission = 'Allow'", 'permission = \'Allow\': expected "allow" or "deny"'),
        ("[[acls]]\ntopic = 'a'", "file:1: acls no. 1: expected principal"),
        ("[[acls]]\nprincipal = 'User:a'", "file:1: acls no. 1: expected operations"),
        (ACL.replace("Read", "Reed") + "topic = 'a'", "file:3: acls no. 1: operations: there is no operation 'Reed'"),
        (ACL.replace("User:a", "alice") + "topic = 'a'", "acls no. 1: Could not parse principal from `alice`"),
        ("[[acls]]\nprincipal = 'User:a'\ntopic = 'b'\noperations = 'Read'", "expected an array of operations"),
        ("[[quotas]]\nproducer_byte_rate = 1", "file:1: quotas no. 1: expected one of user, client_id, ip, or of def"),
        ("[[quotas]]\nuser = 'a'", "file:1: quotas no. 1: expected at least one of producer_byte_rate"),
        ("[[quotas]]\nuser = 'a'\ndefault_user = true\n", "quotas no. 1: default_user: expected no user beside it"),
        ("[[quotas]]\ndefault_user = false", "file:2: quotas no. 1: default_user = False: expected true"),
        ("[[quotas]]\nuser = 'a'\nproducer_byte_rate = '1M'", "producer_byte_rate = '1M': expected a number above 0"),
        ("[[quotas]]\nuser = 'a'\nproducer_byte_rate = 0", "producer_byte_rate: Quota producer_byte_rate must be gre"),
        (f"[[quotas]]\nuser = 'a'\nrequest_percentage = 1{'0' * 400}", "expected a smaller number"),
        ("[[quotas]]\nip = 'nowhere'\nconnection_creation_rate = 1", "quotas no. 1: nowhere is not a valid IP"),
        ("[[quotas]]\nuser = 'a'\nconnection_creation_rate = 1", "connection_creation_rate: Invalid configuration k"),
        (2 * "[[quotas]]\nuser = 'a'\nproducer_byte_rate = 1\n", "file:4: quotas no. 2: the same user, client id or"),
        ("\n[topics\n", r"file: not valid TOML: .*line 2"),
        ("a = " + "9" * 5000, "file: not valid TOML: a number has thousands of digits"),
    ],
)
def test_mistakes_are_one_line_with_their_place(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as wrong:
        parse_state(text, "file")
    assert "\n" not in str(wrong.value)
    assert "hunter" not in str(wrong.value)
    assert wrong.value.__cause__ is None


def test_a_place_is_found_whichever_way_it_is_written() -> None:
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
    assert line_of(text, ("acls", 0, "principal")) == 1
    assert line_of(text, ("topics", "b", "partitions")) == 5
    assert line_of(text, ("topics", "c.d", "partitions")) == 6
    assert line_of(text, ("topics", "e")) == 8
    assert line_of(text, ("users", "e")) is None


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: No such file"):
        read_file(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"a = '\xe9'")
    with pytest.raises(ConfigError, match=r"latin.toml: not valid TOML: it is not UTF-8"):
        read_file(tmp_path / "latin.toml")
