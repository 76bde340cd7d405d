"""Broker configs of Kafka 4.3 that Chronik ignores: accepted in the config file and by AlterConfigs, and described.

Scripts and tools set them, and would fail if the broker rejected them. The module is imported on first use, so that
most nodes start without it.
"""

from __future__ import annotations

from typing import Final

from chronik.configs.keys import ConfigKey, ConfigType, UpdateMode
from chronik.configs.validators import (
    INT_MAX,
    LONG_MAX,
    Validator,
    accept_any_value,
    integer_in_range,
    list_of,
    number_in_range,
    one_of,
    validate_boolean,
)

NONE: Final = "-"
EMPTY: Final = '""'
LONG_DEFAULT: Final = "*"

LONG_DEFAULTS: Final = {
    "remote.log.metadata.manager.class.name": (
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
    ),
    "group.share.persister.class.name": "org.apache.kafka.server.share.persister.DefaultStatePersister",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    "sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
}
"""Default values of ignored configs that are too long for the table of ignored configs."""

# Name, type, update mode, valid values (a range or names), default.
TABLE: Final = """
# Threads, sockets and requests
alter.config.policy.class.name                        class    fixed    -          -
background.threads                                    int      cluster  1..        10
config.providers                                      list     cluster  -          ""
controlled.shutdown.enable                            boolean  fixed    -          true
create.topic.policy.class.name                        class    fixed    -          -
max.request.partition.size.limit                      int      fixed    1..        2000
num.io.threads                                        int      cluster  1..        8
num.network.threads                                   int      cluster  1..        3
queued.max.request.bytes                              long     fixed    -          -1
queued.max.requests                                   int      fixed    1..        500
request.timeout.ms                                    int      fixed    -          30000
socket.connection.setup.timeout.max.ms                long     fixed    -          30000
socket.connection.setup.timeout.ms                    long     fixed    -          10000
socket.listen.backlog.size                            int      fixed    1..        50
socket.receive.buffer.bytes                           int      fixed    -          102400
socket.send.buffer.bytes                              int      fixed    -          102400

# Replication, and moving replicas
alter.log.dirs.replication.quota.window.num           int      fixed    1..        11
alter.log.dirs.replication.quota.window.size.seconds  int      fixed    1..        1
delete.records.purgatory.purge.interval.requests      int      fixed    -          1
fetch.purgatory.purge.interval.requests               int      fixed    -          1000
follower.fetch.last.tiered.offset.enable              boolean  cluster  -          false
num.recovery.threads.per.data.dir                     int      cluster  1..        2
num.replica.alter.log.dirs.threads                    int      fixed    -          -
num.replica.fetchers                                  int      cluster  1..        1
producer.purgatory.purge.interval.requests            int      fixed    -          1000
replica.alter.log.dirs.io.max.bytes.per.second        long     cluster  0..        9223372036854775807
replica.fetch.backoff.ms                              int      fixed    0..        1000
replica.fetch.max.bytes                               int      fixed    0..        1048576
replica.fetch.min.bytes                               int      fixed    -          1
replica.fetch.response.max.bytes                      int      fixed    0..        10485760
replica.fetch.wait.max.ms                             int      fixed    -          500
replica.high.watermark.checkpoint.interval.ms         long     fixed    -          5000
replica.selector.class                                string   fixed    -          -
replica.socket.receive.buffer.bytes                   int      fixed    -          65536
replica.socket.timeout.ms                             int      fixed    -          30000
replication.quota.window.num                          int      fixed    1..        11
replication.quota.window.size.seconds                 int      fixed    1..        1
unclean.leader.election.interval.ms                   long     internal 1..        300000

# Logs
cordoned.log.dirs                                     list     broker   -          ""
log.cleaner.dedupe.buffer.size                        long     cluster  -          134217728
log.cleaner.io.buffer.load.factor                     double   cluster  -          0.9
log.cleaner.io.buffer.size                            int      cluster  0..        524288
log.cleaner.io.max.bytes.per.second                   double   cluster  -          1.7976931348623157E308
log.cleaner.threads                                   int      cluster  0..        1
log.dir                                               list     fixed    -          /tmp/kafka-logs
log.dir.failure.timeout.ms                            long     fixed    1..        30000
log.flush.offset.checkpoint.interval.ms               int      fixed    0..        60000
log.flush.start.offset.checkpoint.interval.ms         int      fixed    0..        60000
log.initial.task.delay.ms                             long     internal 0..        30000

# Tiered storage
remote.fetch.max.wait.ms                              int      cluster  1..        500
remote.list.offsets.request.timeout.ms                long     cluster  1..        30000
remote.log.index.file.cache.total.size.bytes          long     cluster  1..        1073741824
remote.log.index.file.cache.ttl.ms                    long     internal -1..       900000
remote.log.manager.copier.thread.pool.size            int      cluster  1..        10
remote.log.manager.copy.max.bytes.per.second          long     cluster  1..        9223372036854775807
remote.log.manager.copy.quota.window.num              int      fixed    1..        11
remote.log.manager.copy.quota.window.size.seconds     int      fixed    1..        1
remote.log.manager.expiration.thread.pool.size        int      cluster  1..        10
remote.log.manager.fetch.max.bytes.per.second         long     cluster  1..        9223372036854775807
remote.log.manager.fetch.quota.window.num             int      fixed    1..        11
remote.log.manager.fetch.quota.window.size.seconds    int      fixed    1..        1
remote.log.manager.follower.thread.pool.size          int      cluster  1..        2
remote.log.manager.task.interval.ms                   long     fixed    1..        30000
remote.log.manager.task.retry.backoff.max.ms          long     internal 1..        30000
remote.log.manager.task.retry.backoff.ms              long     internal 1..        500
remote.log.manager.task.retry.jitter                  double   internal 0..0.5     0.2
remote.log.manager.thread.pool.size                   int      fixed    1..        2
remote.log.metadata.custom.metadata.max.bytes         int      fixed    0..        128
remote.log.metadata.manager.class.name                string   fixed    -          *
remote.log.metadata.manager.class.path                string   fixed    -          -
remote.log.metadata.manager.impl.prefix               string   fixed    -          rlmm.config.
remote.log.metadata.manager.listener.name             string   fixed    -          -
remote.log.reader.max.pending.tasks                   int      fixed    1..        100
remote.log.reader.threads                             int      cluster  1..        10
remote.log.storage.manager.class.name                 string   fixed    -          -
remote.log.storage.manager.class.path                 string   fixed    -          -
remote.log.storage.manager.impl.prefix                string   fixed    -          rsm.config.
remote.log.storage.system.enable                      boolean  fixed    -          false

# Groups of consumers
group.consumer.assignment.interval.ms                 int      cluster  0..        1000
group.consumer.assignors                              list     fixed    -          uniform,range
group.consumer.heartbeat.interval.ms                  int      fixed    1..        5000
group.consumer.max.assignment.interval.ms             int      fixed    0..        15000
group.consumer.max.heartbeat.interval.ms              int      fixed    1..        15000
group.consumer.max.session.timeout.ms                 int      fixed    1..        60000
group.consumer.max.size                               int      fixed    1..        2147483647
group.consumer.migration.policy string fixed disabled|downgrade|upgrade|bidirectional bidirectional
group.consumer.min.assignment.interval.ms             int      fixed    0..        0
group.consumer.min.heartbeat.interval.ms              int      fixed    1..        5000
group.consumer.min.session.timeout.ms                 int      fixed    1..        45000
group.consumer.regex.refresh.interval.ms              int      internal 10000..    600000
group.consumer.session.timeout.ms                     int      fixed    1..        45000
group.coordinator.append.linger.ms                    int      fixed    -1..       -1
group.coordinator.background.threads                  int      fixed    1..        2
group.coordinator.cached.buffer.max.bytes             int      cluster  524288..   1048588
group.coordinator.rebalance.protocols list fixed consumer|classic|share|streams classic,consumer,streams
group.coordinator.threads                             int      fixed    1..        4
offsets.commit.timeout.ms                             int      fixed    1..        5000
offsets.load.buffer.size                              int      fixed    1..        5242880
offsets.topic.compression.codec                       int      fixed    -          0
offsets.topic.segment.bytes                           int      fixed    1..        104857600

# Share groups and streams groups
group.share.assignment.interval.ms                    int      cluster  0..        1000
group.share.assignors                                 list     fixed    -          simple
group.share.delivery.count.limit                      int      fixed    2..10      5
group.share.heartbeat.interval.ms                     int      fixed    1..        5000
group.share.initialize.retry.interval.ms              int      internal 1..        30000
group.share.max.assignment.interval.ms                int      fixed    0..        15000
group.share.max.delivery.count.limit                  int      fixed    5..25      10
group.share.max.heartbeat.interval.ms                 int      fixed    1..        15000
group.share.max.partition.max.record.locks            int      fixed    2000..10000 4000
group.share.max.record.lock.duration.ms               int      fixed    30000..3600000 60000
group.share.max.session.timeout.ms                    int      fixed    1..        60000
group.share.max.share.sessions                        int      fixed    1..        2000
group.share.max.size                                  int      fixed    1..1000    200
group.share.min.assignment.interval.ms                int      fixed    0..        0
group.share.min.delivery.count.limit                  int      fixed    2..5       2
group.share.min.heartbeat.interval.ms                 int      fixed    1..        5000
group.share.min.partition.max.record.locks            int      fixed    100..2000  100
group.share.min.record.lock.duration.ms               int      fixed    1000..30000 15000
group.share.min.session.timeout.ms                    int      fixed    1..        45000
group.share.partition.max.record.locks                int      fixed    100..10000 2000
group.share.persister.class.name                      string   internal -          *
group.share.record.lock.duration.ms                   int      fixed    1000..3600000 30000
group.share.session.timeout.ms                        int      fixed    1..        45000
group.streams.assignment.interval.ms                  int      cluster  0..        1000
group.streams.heartbeat.interval.ms                   int      fixed    1..        5000
group.streams.initial.rebalance.delay.ms              int      fixed    0..        3000
group.streams.max.assignment.interval.ms              int      fixed    0..        15000
group.streams.max.heartbeat.interval.ms               int      fixed    1..        15000
group.streams.max.session.timeout.ms                  int      fixed    1..        60000
group.streams.max.size                                int      fixed    1..        2147483647
group.streams.max.standby.replicas                    int      fixed    0..        2
group.streams.min.assignment.interval.ms              int      fixed    0..        0
group.streams.min.heartbeat.interval.ms               int      fixed    1..        5000
group.streams.min.session.timeout.ms                  int      fixed    1..        45000
group.streams.num.standby.replicas                    int      fixed    0..        0
group.streams.session.timeout.ms                      int      fixed    1..        45000
share.coordinator.append.linger.ms                    int      fixed    -1..       -1
share.coordinator.cached.buffer.max.bytes             int      cluster  524288..   1048588
share.coordinator.cold.partition.snapshot.interval.ms int      internal 1..        300000
share.coordinator.load.buffer.size                    int      fixed    1..        5242880
share.coordinator.snapshot.update.records.per.snapshot int      fixed    0..500     500
share.coordinator.state.topic.compression.codec       int      fixed    -          0
share.coordinator.state.topic.min.isr                 short    fixed    1..        2
share.coordinator.state.topic.num.partitions          int      fixed    1..        50
share.coordinator.state.topic.prune.interval.ms       int      internal 1..        300000
share.coordinator.state.topic.replication.factor      short    fixed    1..        3
share.coordinator.state.topic.segment.bytes           int      fixed    1..        104857600
share.coordinator.threads                             int      fixed    1..        1
share.coordinator.write.timeout.ms                    int      fixed    1..        5000
share.fetch.purgatory.purge.interval.requests         int      fixed    -          1000

# Transactions and producers
add.partitions.to.txn.retry.backoff.max.ms            int      fixed    0..        100
add.partitions.to.txn.retry.backoff.ms                int      fixed    1..        20
producer.id.expiration.check.interval.ms              int      internal 1..        600000
transaction.abort.timed.out.transaction.cleanup.interval.ms int      fixed    1..        10000
transaction.partition.verification.enable             boolean  cluster  -          true
transaction.state.log.load.buffer.size                int      fixed    1..        5242880
transaction.state.log.min.isr                         int      fixed    1..        2
transaction.state.log.num.partitions                  int      fixed    1..        50
transaction.state.log.replication.factor              short    fixed    1..        3
transaction.state.log.segment.bytes                   int      fixed    1..        104857600
transaction.two.phase.commit.enable                   boolean  fixed    -          false

# Controllers and the metadata log
broker.heartbeat.interval.ms                          int      fixed    -          2000
broker.session.timeout.ms                             int      fixed    -          9000
controller.listener.names                             list     fixed    -          -
controller.performance.always.log.threshold.ms        long     internal 0..        2000
controller.performance.sample.period.ms               long     internal 100..      60000
controller.quorum.append.linger.ms                    int      fixed    0..        25
controller.quorum.auto.join.enable                    boolean  fixed    -          false
controller.quorum.bootstrap.servers                   list     fixed    -          ""
controller.quorum.election.backoff.max.ms             int      fixed    0..        1000
controller.quorum.election.timeout.ms                 int      fixed    0..        1000
controller.quorum.fetch.max.bytes                     int      fixed    1..        1048576
controller.quorum.fetch.snapshot.max.bytes            int      fixed    1..        1048576
controller.quorum.fetch.timeout.ms                    int      fixed    0..        2000
controller.quorum.request.timeout.ms                  int      fixed    0..        2000
controller.quorum.retry.backoff.ms                    int      fixed    0..        20
controller.quorum.voters                              list     fixed    -          ""
controller.socket.timeout.ms                          int      fixed    -          30000
early.start.listeners                                 list     fixed    -          -
initial.broker.registration.timeout.ms                int      fixed    -          60000
internal.metadata.delete.delay.millis                 long     internal -          60000
internal.metadata.log.segment.bytes                   int      internal -          -
internal.metadata.max.batch.size.in.bytes             int      internal -          8388608
metadata.log.dir                                      string   fixed    -          -
metadata.log.max.record.bytes.between.snapshots       long     fixed    1..        20971520
metadata.log.max.snapshot.interval.ms                 long     fixed    0..        3600000
metadata.log.segment.bytes                            int      fixed    8388608..  1073741824
metadata.log.segment.ms                               long     fixed    -          604800000
metadata.max.idle.interval.ms                         int      fixed    0..        500
metadata.max.retention.bytes                          long     fixed    -          104857600
metadata.max.retention.ms                             long     fixed    -          604800000
process.roles                                         list     fixed    broker|controller -
server.max.startup.time.ms                            long     internal 0..        9223372036854775807
unstable.api.versions.enable                          boolean  internal -          false
unstable.feature.versions.enable                      boolean  internal -          false

# Quotas, metrics and telemetry
client.quota.callback.class                           class    fixed    -          -
controller.quota.window.num                           int      fixed    1..        11
controller.quota.window.size.seconds                  int      fixed    1..        1
kafka.metrics.polling.interval.secs                   int      fixed    1..        10
kafka.metrics.reporters                               list     fixed    -          ""
metric.reporters                                      list     cluster  -          *
metrics.num.samples                                   int      fixed    1..        2
metrics.recording.level                               string   fixed    -          INFO
metrics.sample.window.ms                              long     fixed    1..        30000
quota.window.num                                      int      fixed    1..        11
quota.window.size.seconds                             int      fixed    1..        1
telemetry.max.bytes                                   int      fixed    1..        1048576

# TLS
principal.builder.class                               class    broker   -          *
security.providers                                    string   fixed    -          -
ssl.allow.dn.changes                                  boolean  fixed    -          false
ssl.allow.san.changes                                 boolean  fixed    -          false
ssl.cipher.suites                                     list     broker   -          ""
ssl.client.auth                                       string   broker   required|requested|none none
ssl.enabled.protocols                                 list     broker   -          TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm                 string   broker   -          https
ssl.engine.factory.class                              class    broker   -          -
ssl.key.password                                      password listener -          -
ssl.keymanager.algorithm                              string   broker   -          SunX509
ssl.keystore.certificate.chain                        password listener -          -
ssl.keystore.key                                      password listener -          -
ssl.keystore.location                                 string   listener -          -
ssl.keystore.password                                 password listener -          -
ssl.keystore.type                                     string   listener -          JKS
ssl.principal.mapping.rules                           string   fixed    -          DEFAULT
ssl.protocol                                          string   broker   -          TLSv1.3
ssl.provider                                          string   broker   -          -
ssl.secure.random.implementation                      string   broker   -          -
ssl.trustmanager.algorithm                            string   broker   -          PKIX
ssl.truststore.certificates                           password listener -          -
ssl.truststore.location                               string   listener -          -
ssl.truststore.password                               password listener -          -
ssl.truststore.type                                   string   listener -          JKS

# SASL and delegation tokens
delegation.token.expiry.check.interval.ms             long     fixed    1..        3600000
delegation.token.expiry.time.ms                       long     fixed    1..        86400000
delegation.token.max.lifetime.ms                      long     fixed    1..        604800000
delegation.token.secret.key                           password fixed    -          -
sasl.client.callback.handler.class                    class    fixed    -          -
sasl.jaas.config                                      password broker   -          -
sasl.kerberos.kinit.cmd                               string   broker   -          /usr/bin/kinit
sasl.kerberos.min.time.before.relogin                 long     broker   -          60000
sasl.kerberos.principal.to.local.rules                list     broker   -          DEFAULT
sasl.kerberos.service.name                            string   broker   -          -
sasl.kerberos.ticket.renew.jitter                     double   broker   -          0.05
sasl.kerberos.ticket.renew.window.factor              double   broker   -          0.8
sasl.login.callback.handler.class                     class    fixed    -          -
sasl.login.class                                      class    fixed    -          -
sasl.login.connect.timeout.ms                         int      fixed    -          -
sasl.login.read.timeout.ms                            int      fixed    -          -
sasl.login.refresh.buffer.seconds                     short    broker   -          300
sasl.login.refresh.min.period.seconds                 short    broker   -          60
sasl.login.refresh.window.factor                      double   broker   -          0.8
sasl.login.refresh.window.jitter                      double   broker   -          0.05
sasl.login.retry.backoff.max.ms                       long     fixed    -          10000
sasl.login.retry.backoff.ms                           long     fixed    -          100
sasl.mechanism.controller.protocol                    string   fixed    -          GSSAPI
sasl.mechanism.inter.broker.protocol                  string   broker   -          GSSAPI
sasl.oauthbearer.assertion.algorithm                  string   fixed    ES256|RS256 RS256
sasl.oauthbearer.assertion.claim.aud                  string   fixed    -          -
sasl.oauthbearer.assertion.claim.exp.seconds          int      fixed    0..86400   300
sasl.oauthbearer.assertion.claim.iss                  string   fixed    -          -
sasl.oauthbearer.assertion.claim.jti.include          boolean  fixed    -          false
sasl.oauthbearer.assertion.claim.nbf.seconds          int      fixed    0..3600    60
sasl.oauthbearer.assertion.claim.sub                  string   fixed    -          -
sasl.oauthbearer.assertion.file                       string   fixed    -          -
sasl.oauthbearer.assertion.private.key.file           string   fixed    -          -
sasl.oauthbearer.assertion.private.key.passphrase     password fixed    -          -
sasl.oauthbearer.assertion.template.file              string   fixed    -          -
sasl.oauthbearer.client.credentials.client.id         string   fixed    -          -
sasl.oauthbearer.client.credentials.client.secret     password fixed    -          -
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms   long     fixed    -          10000
sasl.oauthbearer.jwt.retriever.class                  class    fixed    -          *
sasl.oauthbearer.jwt.validator.class                  class    fixed    -          *
sasl.oauthbearer.scope                                string   fixed    -          -
sasl.oauthbearer.token.endpoint.url                   string   fixed    -          -
sasl.server.callback.handler.class                    class    fixed    -          -
sasl.server.max.receive.size                          int      fixed    -          524288
security.inter.broker.protocol                        string   fixed    PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL PLAINTEXT
"""


IGNORED_KEY_DOC: Final = "Accepted for compatibility with Kafka; has no effect."
"""Description that DescribeConfigs returns for a config that Chronik accepts but ignores."""

SCOPES: Final = {
    "fixed": UpdateMode.READ_ONLY,
    "internal": UpdateMode.READ_ONLY,
    "broker": UpdateMode.PER_BROKER,
    "listener": UpdateMode.PER_BROKER,
    "cluster": UpdateMode.CLUSTER_WIDE,
}

RANGES: Final = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-INT_MAX - 1, INT_MAX),
    ConfigType.LONG: (-LONG_MAX - 1, LONG_MAX),
}


def _create_validator(kind: ConfigType, legal: str) -> Validator:
    if kind is ConfigType.BOOLEAN:
        return validate_boolean
    if kind in RANGES:
        return integer_in_range(*_parse_range(legal, *RANGES[kind]))
    if kind is ConfigType.DOUBLE:
        low, _, high = legal.partition("..")
        return number_in_range(float(low), float(high)) if high else number_in_range(float("-inf"), float("inf"))
    if legal == NONE:
        return accept_any_value
    names = legal.split("|")
    return list_of(*names) if kind is ConfigType.LIST else one_of(*names)


def _parse_range(legal: str, lowest: int, highest: int) -> tuple[int, int]:
    low, _, high = legal.partition("..")
    return lowest if low == NONE else int(low), int(high or highest)


def _key(line: str) -> ConfigKey:
    name, kind_name, scope, legal, default = line.split()
    kind = ConfigType[kind_name.upper()]
    text = {NONE: None, EMPTY: "", LONG_DEFAULT: LONG_DEFAULTS.get(name)}.get(default, default)
    return ConfigKey(
        name,
        kind,
        text,
        IGNORED_KEY_DOC,
        _create_validator(kind, legal),
        update_mode=SCOPES[scope],
        kept=True,
        internal=scope == "internal",
        per_listener=scope == "listener",
    )


def _list_table_lines() -> list[str]:
    return [line for line in TABLE.splitlines() if line and not line.startswith("#")]


IGNORED_KEYS: Final = {key.name: key for key in map(_key, _list_table_lines())}
