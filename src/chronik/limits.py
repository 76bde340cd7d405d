"""Limits that protect a node from its clients and peers, each with its reason.

Tests check every limit at its maximum and one above.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

FRAME_BYTES_MAX = 100 * MIB
"""Maximum size of a request in bytes (Kafka's `socket.request.max.bytes`)."""

NON_PRODUCE_REQUEST_BYTES_MAX = 32 * MIB
"""Maximum size in bytes of a request without records. The largest requests of real clients, which name every partition
of a large cluster, are far smaller. Decoding and handling a request takes several times its size in memory."""

PRODUCE_NAMES_BYTES_MAX = 4 * MIB
"""Maximum total size in bytes of the topic names in a produce request, which its response repeats: 16,000 names of
maximum length."""

FRAMES_BYTES_MAX = 512 * MIB
"""Maximum received bytes of all large requests that are being received or handled. One request at a time may exceed the
limit, so that partially received requests do not deadlock."""

FRAME_RECEIVE_SECONDS_MAX = 60.0
"""Maximum seconds for receiving a request completely. A slower request would occupy memory of FRAMES_BYTES_MAX for too
long."""

DECODED_INLINE_BYTES_MAX = 256 * KIB
"""Maximum size in bytes of a request that is decoded on the event loop. A larger request without records is decoded in
a thread: it may have 250,000 elements, which take 200 ms."""

DECODED_BEFORE_SLOT_BYTES_MAX = 16 * KIB
"""Maximum size in bytes of a read request that is decoded before it has a scheduler slot. A decoded request takes up to
25 times its encoded size, and hundreds of connections may wait for slots."""

FRAME_RATE_BYTES_MIN = 64 * KIB
"""Minimum receive rate of a large request, in bytes per second, while other requests wait for memory."""

FRAME_RATE_SECONDS = 2.0
"""Interval in seconds over which FRAME_RATE_BYTES_MIN is measured, long enough to retransmit one or two lost
packets."""

PEER_MESSAGE_BYTES_MAX = 24 * MIB
"""Maximum size in bytes of a message between nodes: the largest proposal (`RaftConfig.entry_bytes_max`, 16 MiB) plus
overhead. All other messages are far smaller."""

CLUSTER_MEMBERS_MAX = 64
"""Maximum number of members of a cluster, including learners. The leader sends every entry to every member."""

CONNECTIONS_MAX = 10_000
"""Maximum number of client connections. Each takes a file descriptor and a few kB. Kafka's default is unlimited."""

TLS_HANDSHAKES_MAX = 1024
"""Maximum number of concurrent TLS handshakes, each of which takes up to 100 kB and a file descriptor. Beyond the
limit, the oldest handshake of the address with the most handshakes is aborted, so that an attacker only displaces its
own."""

TLS_HANDSHAKES_PER_ADDRESS_MAX = 256
"""Maximum number of concurrent TLS handshakes per address. Hundreds of clients may reconnect at once after a node was
down."""

TLS_HANDSHAKE_SECONDS_MAX = 10.0
"""Timeout of a TLS handshake in seconds. A handshake takes two round trips and a millisecond of CPU time."""

TLS_HANDSHAKE_BYTES_MAX = 128 * KIB
"""Maximum bytes received before a TLS handshake completes. A handshake takes a few kB, or dozens with a long
certificate chain; the client's first requests may arrive in the same 64 KiB read."""

TLS_SUBJECT_CHARACTERS_MAX = 1024
"""Maximum characters of the subject of a client certificate. Matching a principal rule takes a microsecond per
character and part of the rule. X.520 limits each attribute to 64 characters."""

CONNECTION_IDLE_SECONDS_MAX = 600.0
"""Seconds after which an idle connection is closed (Kafka's `connections.max.idle.ms`)."""

REQUESTS_QUEUED_MAX = 64
"""Maximum number of queued requests per connection. Clients have 5 to 100 requests in flight; at the limit, the node
stops reading from the socket."""

RESPONSES_UNSENT_BYTES_MAX = 64 * KIB
"""Maximum unsent response bytes of a connection, beyond the socket's send buffer. At the limit its next request is not
handled, so that a client has at most one large response at a time."""

RESPONSES_BYTES_MAX = 64 * MIB
"""Maximum response bytes of all connections that clients have not read. Fetch responses shrink as the limit is
approached; beyond it, other large responses wait, and connections of clients that do not read are closed."""

RESPONSE_BYTES_MIN = 64 * KIB
"""Minimum size limit of a fetch response in bytes, so that a consumer makes progress even if other clients do not
read."""

RESPONSE_STALLED_SECONDS_MAX = 3.0
"""Maximum seconds for which a client may read below the minimum rate while no memory is left for other responses."""

RESPONSE_RATE_BYTES_MIN = 64 * KIB
"""Minimum rate, in bytes per second, at which a client must read while no memory is left for other responses."""

HELD_RESPONSES_BYTES_MAX = 16 * MIB
"""Maximum bytes of large responses that wait until other responses have been read, such as the metadata of thousands of
partitions for some hundred clients. Beyond the limit, a connection that needs more is closed."""

HELD_RESPONSE_SECONDS_MAX = 10.0
"""Maximum seconds for which a large response waits for memory: longer than RESPONSE_STALLED_SECONDS_MAX, shorter than
client timeouts."""

FETCH_RESPONSE_BYTES_MAX = 16 * MIB
"""Maximum size of a fetch response in bytes, regardless of the client's limit (at least one batch is returned). Reading
1 MB delays other clients by a millisecond. The session's next fetch starts with the partitions that were omitted."""

LISTING_RESPONSE_BYTES_MAX = 40 * MIB
"""Maximum size in bytes of a response that describes topics, configs or groups: 1.5 million partitions, or the configs
of 10,000 topics. It is briefly in memory twice. Each element that does not fit is returned with an error."""

FETCH_WAIT_SECONDS_MAX = 300.0
"""Maximum seconds for which a fetch waits, regardless of the client's limit. No client waits longer for a response."""

FETCH_PARTITIONS_MAX = 50_000
"""Maximum number of partitions in a fetch: far more than a consumer has on one node. Each takes a few microseconds."""

REPLICA_FETCH_PARTITION_BYTES_MAX = 3 * MIB
"""Maximum bytes per partition in a response to a follower, unless a single batch is larger: three batches of the
default maximum size. A lagging follower syncs them together. Kafka's `replica.fetch.max.bytes` is 1 MiB."""

PARTITION_UNCOMMITTED_BYTES_MAX = 2 * REPLICA_FETCH_PARTITION_BYTES_MAX
"""Maximum uncommitted bytes of a replicated partition while a connection sends further produce requests without waiting
for responses. A follower can fetch the second half while it syncs the first; more would only lengthen its backlog."""

UNCOMMITTED_BYTES_MAX = 64 * MIB
"""Maximum uncommitted bytes of all partitions of a node while connections send further produce requests without
waiting. A node caches as many bytes for its followers (`RECENT_BYTES_MAX`); beyond it, they read from files and fall
further behind."""

FETCH_SESSIONS_MAX = 1000
"""Maximum number of cached fetch sessions (Kafka's `max.incremental.fetch.session.cache.slots`)."""

FETCH_SESSION_PARTITIONS_MAX = 100_000
"""Maximum number of partitions in all cached fetch sessions. Beyond it, fetches are sessionless (session id 0), as the
protocol allows."""

FETCH_SESSION_IDLE_SECONDS = 120.0
"""Idle seconds after which a fetch session may be evicted for a new one (Kafka's
`min.incremental.fetch.session.eviction.ms`)."""

DECOMPRESSED_BYTES_MAX = 100 * MIB
"""Maximum decompressed size of a batch in bytes, as protection from decompression bombs. Producers rarely build a batch
that they could not send uncompressed."""

INSPECTED_BYTES_MAX = 40 * MIB
"""Maximum decompressed bytes per request (proportionally more for a large request) if the node must inspect records:
compacted topics, recompression, old message formats, lookups by timestamp. The limit bounds the memory that an 11 kB
request can claim. Java's producer, which counts compressed bytes, reaches it at a ratio of 1:40 and then splits its
batches."""

INSPECTED_RECORDS_MAX = 1_000_000
"""Maximum number of inspected records per request (proportionally more for a large request): about a second of CPU
time. Equal to the maximum of librdkafka's `batch.num.messages`."""

INSPECTED_ON_LOOP_BYTES_MAX = 1 * MIB
INSPECTED_ON_LOOP_RECORDS_MAX = 5000
"""Maximum decompressed bytes and records per request that are inspected on the event loop, which takes a few
milliseconds. Larger requests are inspected in a thread."""

CONVERTED_BYTES_MAX = 16 * MIB
"""Maximum decompressed bytes of a message in the old formats (Produce 0 to 2), and of a record converted to them (Fetch
0 to 3). Conversion needs several copies. Clients of that generation send at most 1 MB."""

CONVERTED_PER_FETCH_BYTES_MAX = 4 * MIB
"""Maximum bytes that are down-converted per partition for one Fetch 0 to 3. The next fetch continues, if necessary
within a batch."""

RECORD_ERRORS_MAX = 1000
"""Maximum number of rejected records per batch listed in the response, so that it does not grow with the request."""

TOPIC_NAME_CHARACTERS_MAX = 249
"""Maximum characters of a topic name, as in Kafka. The name and a partition number must fit into a file name."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Maximum number of partitions that one CreateTopics or CreatePartitions request may create, as in Kafka's
controller."""

TOPIC_PARTITIONS_MAX = 10_000
"""Maximum number of partitions per topic."""

OPEN_FILES_MAX = 512
"""Maximum number of open segment files. The usual soft limit of a process is 1024 descriptors."""

PARTITIONS_PER_PAGE_MAX = 2000
"""Maximum number of partitions in a DescribeTopicPartitions response (Kafka's `max.request.partition.size.limit`)."""

UNAUTHENTICATED_FRAME_BYTES_MAX = 64 * KIB
"""Maximum size in bytes of a request from an unauthenticated client. The largest tokens have a few kB."""

SASL_MESSAGE_BYTES_MAX = 4 * KIB
"""Maximum size in bytes of a PLAIN or SCRAM message: a user name, a password and a nonce. It is parsed on the event
loop."""

AUTHENTICATION_SECONDS_MAX = 10.0
"""Timeout of authentication in seconds: a few round trips, with a margin for slow networks and busy machines."""

CONCURRENT_AUTHENTICATIONS_MAX = 2
"""Maximum number of passwords and tokens that are verified concurrently in threads. Each occupies a CPU for some
milliseconds."""

QUEUED_AUTHENTICATIONS_MAX = 1000
"""Maximum number of queued authentications, which take seconds of CPU time. Beyond it, connections are closed and
clients retry."""

JWKS_BYTES_MAX = 1 * MIB
"""Maximum size of a JSON Web Key Set (JWKS) in bytes: some hundred of the largest keys."""

TRANSACTIONAL_ID_CHARACTERS_MAX = 512
"""Maximum characters of a new transactional id. Every node stores each id for `transactional.id.expiration.ms`, in
memory and in the metadata log. Kafka Streams, Connect and Flink build their ids from a prefix, a UUID and some
numbers."""

TRANSACTIONAL_IDS_PER_CLIENT_MAX = 50_000
"""Maximum number of new transactional ids that one principal from one address may create through one node within
`transactional.id.expiration.ms`: half of the total, so that one client cannot lock out the others."""

PRODUCER_IDS_PER_CLIENT_MAX = 10_000
"""Maximum burst of producer ids that one principal from one address may allocate from one node. All clients of a large
application may share an address and start together."""

PRODUCER_IDS_PER_SECOND = 100
"""Sustained rate, in producer ids per second, at which one principal from one address may allocate ids beyond the
burst. Short-lived processes allocate one each."""

PRODUCERS_PER_NODE_MAX = 200_000
"""Maximum number of producers whose state the partitions of a node store, at 0.5 to 1.2 kB each. Beyond it, the
partition with the most producers evicts the longest-idle ones and no longer detects their duplicates."""

GROUP_ID_CHARACTERS_MAX = 512
"""Maximum characters of a new group id, which every node stores in memory and in the metadata log until the group
expires."""

GROUP_INSTANCE_ID_CHARACTERS_MAX = 249
"""Maximum characters of the `group.instance.id` of a static member, as in Kafka's clients."""

GROUP_PROTOCOL_CHARACTERS_MAX = 255
"""Maximum characters of a protocol type ("consumer", "connect") or an assignor name, stored per group member."""

GROUP_PROTOCOLS_MAX = 100
"""Maximum number of protocols (assignors) that a group member supports. Clients send one to three."""

CLIENT_ID_CHARACTERS_MAX = 255
"""Maximum characters of a client id that a group stores per member. It is only shown to administrators."""

CLIENT_SOFTWARE_CHARACTERS_MAX = 255
"""Maximum characters of a client's software name or version in ApiVersions, stored per connection, even before
authentication."""

CONFIG_NAME_CHARACTERS_MAX = 255
"""Maximum characters of a config name. Broker configs may have any name, such as a plugin's, and are part of every
snapshot."""

HOST_CHARACTERS_MAX = 255
"""Maximum characters of the host in a node's address. DNS names have at most 253 characters."""

IMPORT_SOURCE_CHARACTERS_MAX = 1000
"""Maximum characters of the description of an import's source, usually a path."""

PIPELINE_NAME_CHARACTERS_MAX = 249
"""Maximum characters of a pipeline name, as for topic names. It is stored while the pipeline's driver waits for
requests."""

ACLS_MAX = 100_000
"""Maximum number of ACLs of a cluster. Each takes half a kB of memory on every node and in every snapshot."""

ACL_NAME_CHARACTERS_MAX = 1024
"""Maximum characters of a resource name, principal or host in an ACL. Certificate subjects have some hundred
characters."""

ACLS_PER_REQUEST_MAX = 10_000
"""Maximum number of ACLs that one CreateAcls or DeleteAcls request may change, as in Kafka's controller."""

CACHED_DECISIONS_MAX = 20_000
"""Maximum number of cached authorization decisions. The cache is cleared when it is full and when ACLs change."""

CACHED_DECISION_NAME_CHARACTERS_MAX = 255
"""Maximum characters of a resource name whose decisions are cached, so that invented names do not fill the cache."""

ACL_FILTERS_MAX = 100
"""Maximum number of wildcard filters in a DeleteAcls request. Each examines all ACLs."""
QUOTA_ENTITIES_MAX = 10_000
"""Maximum number of users, clients, user-client pairs and addresses with their own quotas. All are part of every
snapshot and of one DescribeClientQuotas response. For more entities, use default quotas."""

QUOTA_NAME_CHARACTERS_MAX = 1000
"""Maximum characters of a user or client name in a quota. Certificate subjects have some hundred characters."""

QUOTA_ALTERATIONS_MAX = 1000
"""Maximum number of entities whose quotas one request (one command) may alter. Each takes 10 µs of event-loop time on
every node."""

TRACKED_QUOTA_ENTITIES_MAX = 10_000
"""Maximum number of entities per quota key whose usage a node tracks: as many as may be connected. Beyond it, the least
recently used entity is evicted, and its usage is reset."""

THROTTLE_SECONDS_MAX = 3600.0
"""Maximum throttle time of a request in seconds. Kafka's throttle time has 31 bits of milliseconds, and clients wait
minutes at most. The remaining delay applies to the next request."""

SAMPLE_BYTES_MAX = 64 * KIB
"""Maximum size in bytes of a table sample that a pipeline driver returns: twenty rows of fifty columns, one line of
text each."""

PENDING_SAMPLES_MAX = 64
"""Maximum number of pending table samples of a node. Each may briefly hold a response of SAMPLE_BYTES_MAX."""

PENDING_SAMPLES_PER_ACCOUNT_MAX = 16
"""Maximum number of pending table samples per principal or, without authentication, per client network. Each may take
30 seconds."""

SUBJECT_NAME_CHARACTERS_MAX = 1024
"""Maximum characters of the name of a subject with its context, as in ACLs. Names consist of a topic name of up to 249
characters and, depending on the strategy, the full name of a record type."""

SUBJECTS_MAX = 100_000
"""Maximum number of subjects of the schema registry, including soft-deleted ones. Each takes 1 kB of memory on every
node, and is part of every snapshot."""

SUBJECT_VERSIONS_MAX = 2000
"""Maximum number of versions per subject, including soft-deleted ones. Deleting a subject takes 5 µs per version, and a
registration under a transitive compatibility level compares with each."""

SCHEMA_SETTINGS_MAX = 100_000
"""Maximum number of subjects and contexts of the schema registry with a config or a mode of their own."""

SCHEMA_CONTEXTS_MAX = 1000
"""Maximum number of contexts of the schema registry, including deleted ones: their next schema id is kept, because ids
are never reused. Some deployments have one per tenant or source cluster."""

SCHEMA_BYTES_MAX = 1 * MIB
"""Maximum size in bytes of the text of a schema. Schemas of a few kB are usual, generated ones have up to 500 kB."""

SCHEMA_PROPERTIES_BYTES_MAX = 256 * KIB
"""Maximum size in bytes of the metadata and the rule set of a schema, or of the defaults in a config, as JSON."""

SCHEMAS_BYTES_MAX = 128 * MIB
"""Maximum total size in bytes of the schemas of a cluster. Every node has them in memory and in its snapshots."""

SCHEMA_REFERENCES_MAX = 1000
"""Maximum number of schemas to which a schema refers, directly or through others."""

SCHEMA_REFERENCE_DEPTH_MAX = 100
"""Maximum length of a chain of references between schemas. Protobuf files of large projects import each other through
about 20 levels."""

SCHEMA_REFERENCES_BYTES_MAX = 4 * MIB
"""Maximum total size in bytes of a schema and all schemas to which it refers. They are parsed together."""

SCHEMA_REFERENCE_NAME_CHARACTERS_MAX = 1024
"""Maximum characters of the name of a reference: a full name, a URI or a path."""

SCHEMA_REFERENCE_STEPS_MAX = 20_000
"""Maximum number of references that are followed to find all schemas to which a schema refers, including several
references to the same schema. Following one takes about 0.3 µs on the event loop."""

SCHEMA_JOBS_MAX = 64
"""Maximum number of requests of a node whose schemas are being parsed or compared, or wait for a thread. Each may have
a schema of SCHEMA_BYTES_MAX, and most take a few milliseconds."""

SCHEMA_COMPARISON_SECONDS_MAX = 10.0
"""Maximum time in seconds for which a schema is compared with the versions of its subject. Comparing two schemas of a
few kB takes a millisecond."""

PARSED_SCHEMAS_BYTES_MAX = 32 * MIB
"""Maximum estimated memory in bytes of the parsed schemas that a node caches: 600 schemas with 40 fields. A parsed
schema takes up to 60 times the memory of its text."""

SCHEMAS_PER_RESPONSE_MAX = 1000
"""Maximum number of versions in a list of schemas, as in Confluent's registry."""

SCHEMAS_RESPONSE_BYTES_MAX = 32 * MIB
"""Maximum total size in bytes of the schemas in a list. Many versions may have the same large schema."""
