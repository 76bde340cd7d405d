"""Limits that protect a node from its clients and peers, each with its reason.

Tests check every limit at its maximum and one above.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

FRAME_BYTES_MAX = 100 * MIB
"""Bytes of one request. Kafka's `socket.request.max.bytes`."""

NON_PRODUCE_REQUEST_BYTES_MAX = 32 * MIB
"""Bytes of one request without records. The largest requests of real clients, which name every partition of a large
cluster, have a fraction of this; decoding and answering a request takes several times its size."""

PRODUCE_NAMES_BYTES_MAX = 4 * MIB
"""Bytes of topic names in one produce request, which its response repeats: 16,000 names of maximum length."""

FRAMES_BYTES_MAX = 512 * MIB
"""Received bytes of all large requests that are being received, handled or answered. One more request may exceed it, so
that partially received requests do not deadlock."""

FRAME_RECEIVE_SECONDS_MAX = 60.0
"""Seconds in which a request must arrive completely. A slower one would hold its share of FRAMES_BYTES_MAX too long."""

DECODED_INLINE_BYTES_MAX = 256 * KIB
"""Bytes up to which a request is decoded on the event loop. Larger ones without records are decoded in a thread: they
may have 250,000 elements, which take 200 ms."""

DECODED_BEFORE_SLOT_BYTES_MAX = 16 * KIB
"""Bytes up to which a read request is decoded before it has a scheduler slot. A decoded request takes up to 25 times
its encoded size, and hundreds of connections may wait for slots."""

FRAME_RATE_BYTES_MIN = 64 * KIB
"""Bytes per second at which a large request must arrive while other requests wait for memory."""

FRAME_RATE_SECONDS = 2.0
"""Seconds over which FRAME_RATE_BYTES_MIN is measured: long enough to retransmit one or two lost packets."""

PEER_MESSAGE_BYTES_MAX = 24 * MIB
"""Bytes of one message between nodes: the largest proposal (`RaftConfig.entry_bytes_max`, 16 MiB) plus overhead. All
other messages are far smaller."""

CLUSTER_MEMBERS_MAX = 64
"""Members of a cluster, including learners: the leader sends every entry to every member."""

CONNECTIONS_MAX = 10_000
"""Client connections. Each takes a file descriptor and a few kB. Kafka's default is no limit."""

TLS_HANDSHAKES_MAX = 1024
"""Concurrent TLS handshakes. Each takes up to 100 kB and a file descriptor. Beyond the limit, the oldest handshake of
the address that has most of them is aborted, so an attacker displaces only its own."""

TLS_HANDSHAKES_PER_ADDRESS_MAX = 256
"""Concurrent TLS handshakes from one address. Hundreds of clients may reconnect at once after a node was down."""

TLS_HANDSHAKE_SECONDS_MAX = 10.0
"""Seconds for one TLS handshake, which takes two round trips and a millisecond of CPU time."""

TLS_HANDSHAKE_BYTES_MAX = 128 * KIB
"""Bytes received before a TLS handshake completes: a few kB, or some dozens with a long certificate chain. The client's
first requests may follow in the same 64 KiB read."""

TLS_SUBJECT_CHARACTERS_MAX = 1024
"""Characters of the subject of a client certificate. Matching it against a principal rule takes a microsecond per
character and part of the rule. X.520 limits each attribute to 64 characters."""

CONNECTION_IDLE_SECONDS_MAX = 600.0
"""Seconds after which an idle connection is closed. Kafka's `connections.max.idle.ms`."""

REQUESTS_QUEUED_MAX = 64
"""Queued requests of one connection. Clients keep 5 to 100 requests in flight; beyond the limit, the node stops reading
from the socket."""

RESPONSES_UNSENT_BYTES_MAX = 64 * KIB
"""Unsent response bytes of a connection, beyond the socket's send buffer, from which its next request is not handled:
a client has at most one large response at a time."""

RESPONSES_BYTES_MAX = 64 * MIB
"""Response bytes of all connections that clients have not read. Fetch responses shrink as it is approached; beyond it,
other large responses wait, and connections of clients that do not read are closed."""

RESPONSE_BYTES_MIN = 64 * KIB
"""Bytes that a fetch response may always have: a consumer makes progress even if other clients do not read."""

RESPONSE_STALLED_SECONDS_MAX = 3.0
"""Seconds for which a client may read too little of its responses while no memory is left for other responses."""

RESPONSE_RATE_BYTES_MIN = 64 * KIB
"""Bytes per second that a client must read while no memory is left for other responses."""

HELD_RESPONSES_BYTES_MAX = 16 * MIB
"""Bytes of large responses that wait until other responses are read, such as the metadata of thousands of partitions
for some hundred clients. Beyond the limit, a connection that needs more is closed."""

HELD_RESPONSE_SECONDS_MAX = 10.0
"""Seconds for which such a response waits: longer than clients that do not read keep their connections, shorter than
client timeouts."""

FETCH_RESPONSE_BYTES_MAX = 16 * MIB
"""Bytes of one fetch response, whatever the client requests (at least one batch is returned). Reading 1 MB delays other
clients by a millisecond. The next fetch of the session starts with the partitions that were left out."""

LISTING_RESPONSE_BYTES_MAX = 40 * MIB
"""Bytes of one response that describes topics, configs or groups: 1.5 million partitions, or the configs of 10,000
topics. It is in memory twice for a moment. Elements that do not fit are returned with an error each."""

FETCH_WAIT_SECONDS_MAX = 300.0
"""Seconds for which a fetch may wait, whatever the client requests: no client waits longer for a response."""

FETCH_PARTITIONS_MAX = 50_000
"""Partitions in one fetch: far more than a consumer has on one node. Each takes a few microseconds."""

REPLICA_FETCH_PARTITION_BYTES_MAX = 3 * MIB
"""Bytes of one partition in one response to a follower, unless a single batch is larger: three batches of the largest
default maximum size. A lagging follower syncs them together. Kafka's `replica.fetch.max.bytes` is 1 MiB."""

PARTITION_UNCOMMITTED_BYTES_MAX = 2 * REPLICA_FETCH_PARTITION_BYTES_MAX
"""Uncommitted bytes of a replicated partition up to which a connection may send produce requests ahead of their
responses. A follower can fetch the second half while it syncs the first; more would only lengthen its backlog."""

UNCOMMITTED_BYTES_MAX = 64 * MIB
"""Uncommitted bytes of all partitions of a node up to which connections may do the same. A node keeps as many bytes in
memory for its followers (`RECENT_BYTES_MAX`); beyond it, they read from files and fall further behind."""

FETCH_SESSIONS_MAX = 1000
"""Cached fetch sessions. Kafka's `max.incremental.fetch.session.cache.slots`."""

FETCH_SESSION_PARTITIONS_MAX = 100_000
"""Partitions in all cached fetch sessions. Beyond it, fetches are sessionless (session id 0), which is legal."""

FETCH_SESSION_IDLE_SECONDS = 120.0
"""Idle seconds after which a new fetch session may evict one. Kafka's `min.incremental.fetch.session.eviction.ms`."""

DECOMPRESSED_BYTES_MAX = 100 * MIB
"""Decompressed bytes of one batch, as protection from decompression bombs. Producers hardly ever build a batch that
they could not send uncompressed."""

INSPECTED_BYTES_MAX = 40 * MIB
"""Decompressed bytes per request (more, in proportion, for a large request) where the node must inspect records:
compacted topics, recompression, old message formats, lookups by timestamp. It bounds the memory that an 11 kB request
can claim. Java's producer, which counts compressed bytes, reaches it at a ratio of 1:40 and then splits its batches."""

INSPECTED_RECORDS_MAX = 1_000_000
"""Inspected records per request (more, in proportion, for a large request): about a second of CPU time. Equal to the
maximum of librdkafka's `batch.num.messages`."""

INSPECTED_ON_LOOP_BYTES_MAX = 1 * MIB
INSPECTED_ON_LOOP_RECORDS_MAX = 5000
"""Decompressed bytes and records that are inspected on the event loop for one request: a few milliseconds. Larger
requests are inspected in a thread, so other connections do not wait."""

CONVERTED_BYTES_MAX = 16 * MIB
"""Decompressed bytes of one message in the old formats (Produce 0 to 2), and of a record that is converted to them
(Fetch 0 to 3). Conversion needs several copies. Clients of that generation send 1 MB."""

CONVERTED_PER_FETCH_BYTES_MAX = 4 * MIB
"""Bytes that are down-converted for one partition in one Fetch 0 to 3. The next fetch continues, if necessary within
a batch."""

RECORD_ERRORS_MAX = 1000
"""Rejected records of one batch that the response names: a response must not grow with the size of its request."""

TOPIC_NAME_CHARACTERS_MAX = 249
"""Characters of a topic name, as in Kafka: the name and a partition number must fit into a file name."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Partitions that one CreateTopics or CreatePartitions request may create, as in Kafka's controller."""

TOPIC_PARTITIONS_MAX = 10_000
"""Partitions of one topic."""

OPEN_FILES_MAX = 512
"""Segment files that are open at the same time; the usual soft limit of a process is 1024."""

PARTITIONS_PER_PAGE_MAX = 2000
"""Partitions in one DescribeTopicPartitions response. Kafka's `max.request.partition.size.limit`."""

UNAUTHENTICATED_FRAME_BYTES_MAX = 64 * KIB
"""Bytes of one request from a client that has not authenticated: the largest tokens have some kB."""

SASL_MESSAGE_BYTES_MAX = 4 * KIB
"""Bytes of one PLAIN or SCRAM message: a user name, a password and a nonce. It is parsed on the event loop."""

AUTHENTICATION_SECONDS_MAX = 10.0
"""Seconds for authentication: a few round trips, with time to spare for slow networks and busy machines."""

CONCURRENT_AUTHENTICATIONS_MAX = 2
"""Passwords and tokens that are verified in threads at the same time: each keeps a CPU busy for some milliseconds."""

QUEUED_AUTHENTICATIONS_MAX = 1000
"""Queued authentications: seconds of CPU time. Beyond it, connections are closed and clients retry."""

JWKS_BYTES_MAX = 1 * MIB
"""Bytes of a JSON Web Key Set (JWKS): some hundred of the largest keys."""

TRANSACTIONAL_ID_CHARACTERS_MAX = 512
"""Characters of a new transactional id. Every node keeps each id for `transactional.id.expiration.ms`, in memory and in
the metadata log. Kafka Streams, Connect and Flink build theirs from a prefix, a UUID and some numbers."""

TRANSACTIONAL_IDS_PER_CLIENT_MAX = 50_000
"""New transactional ids that one principal from one address may create through one node within
`transactional.id.expiration.ms`: half of all, so that one client cannot lock out the others."""

PRODUCER_IDS_PER_CLIENT_MAX = 10_000
"""Producer ids that one principal from one address may allocate in a burst from one node; all clients of a large
application may share an address and start together."""

PRODUCER_IDS_PER_SECOND = 100
"""Producer ids per second that such a client may allocate beyond the burst: short-lived processes take one each."""

PRODUCERS_PER_NODE_MAX = 200_000
"""Producers whose state the partitions of a node keep, 0.5 to 1.2 kB each. Beyond it, the partition with most producers
evicts those that have been idle longest and no longer recognizes their retries."""

GROUP_ID_CHARACTERS_MAX = 512
"""Characters of a new group id, which every node keeps in memory and in the metadata log until the group expires."""

GROUP_INSTANCE_ID_CHARACTERS_MAX = 249
"""Characters of the `group.instance.id` of a static member, as in Kafka's clients."""

GROUP_PROTOCOL_CHARACTERS_MAX = 255
"""Characters of a protocol type ("consumer", "connect") or an assignor name, stored per group member."""

GROUP_PROTOCOLS_MAX = 100
"""Protocols (assignors) that one group member supports. Clients send one to three."""

CLIENT_ID_CHARACTERS_MAX = 255
"""Characters of a client id that a group keeps per member. Administrators see them; they have no effect."""

CLIENT_SOFTWARE_CHARACTERS_MAX = 255
"""Characters of a client's software name or version in ApiVersions, kept per connection, authenticated or not."""

CONFIG_NAME_CHARACTERS_MAX = 255
"""Characters of a config name. Broker configs may have any name (a plugin's, for example) and are in every snapshot."""

HOST_CHARACTERS_MAX = 255
"""Characters of the host in a node's address. DNS names have at most 253 characters."""

IMPORT_SOURCE_CHARACTERS_MAX = 1000
"""Characters of the description of an import's source, usually a path."""

PIPELINE_NAME_CHARACTERS_MAX = 249
"""Characters of a pipeline name, as for topic names. It is kept while the pipeline's driver waits for requests."""

ACLS_MAX = 100_000
"""ACLs of a cluster. Each takes half a kB of memory on every node and in every snapshot."""

ACL_NAME_CHARACTERS_MAX = 1024
"""Characters of a resource name, principal or host in an ACL. Certificate subjects have some hundred characters."""

ACLS_PER_REQUEST_MAX = 10_000
"""ACLs that one CreateAcls or DeleteAcls request may change, as in Kafka's controller."""

CACHED_DECISIONS_MAX = 20_000
"""Cached authorization decisions. Beyond it, and when ACLs change, the cache is cleared."""

CACHED_DECISION_NAME_CHARACTERS_MAX = 255
"""Characters of a resource name up to which decisions are cached, so that invented names do not fill the cache."""

ACL_FILTERS_MAX = 100
"""Wildcard filters in one DeleteAcls request: each examines all ACLs."""
QUOTA_ENTITIES_MAX = 10_000
"""Users, clients, user-client pairs and addresses with their own quotas. All are in every snapshot and in one
DescribeClientQuotas response. For more entities, use default quotas."""

QUOTA_NAME_CHARACTERS_MAX = 1000
"""Characters of a user or client name in a quota. Certificate subjects have some hundred characters."""

QUOTA_ALTERATIONS_MAX = 1000
"""Entities whose quotas one request (one command) may alter: each takes 10 µs of event-loop time on every node."""

TRACKED_QUOTA_ENTITIES_MAX = 10_000
"""Entities whose quota usage a node tracks per quota key: as many as may be connected. Beyond it, the least recently
used entity is evicted and starts with an unused quota."""

THROTTLE_SECONDS_MAX = 3600.0
"""Seconds for which one request may be throttled. Kafka's throttle time has 31 bits of milliseconds, and clients wait
minutes at most. The remaining delay applies to the next request."""

SAMPLE_BYTES_MAX = 64 * KIB
"""Bytes of one table sample that a pipeline driver returns: twenty rows of fifty columns, one line of text each."""

PENDING_SAMPLES_MAX = 64
"""Pending table samples of one node. Each may keep a response of SAMPLE_BYTES_MAX for a moment."""

PENDING_SAMPLES_PER_ACCOUNT_MAX = 16
"""Pending table samples of one principal or, without authentication, one client network: each may take 30 seconds."""
