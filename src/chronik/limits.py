"""Every limit of a node that a stranger could push against, with its reason. Tested at its maximum and one above."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

FRAME_BYTES_MAX = 100 * MIB
"""One request. Kafka's `socket.request.max.bytes`."""

PLAIN_REQUEST_BYTES_MAX = 32 * MIB
"""One request without records. The largest that clients send, with every partition of a large cluster in it, have a
fraction of that; decoded and answered it takes several times as much."""

PRODUCE_NAMES_BYTES_MAX = 4 * MIB
"""Names of topics in one produce request, which its answer repeats: 16,000 of the longest."""

FRAMES_BYTES_MAX = 512 * MIB
"""All large requests that are being received, wait to be handled or to be answered, as far as they have arrived. One
more may go on beyond it, so that those which are there in part do not wait for each other."""

FRAME_RECEIVE_SECONDS_MAX = 60.0
"""A request that trickles in slower than this holds its share of FRAMES_BYTES_MAX for nothing: it is cut off."""

DECODED_AT_ONCE_BYTES_MAX = 256 * KIB
"""A longer request is decoded in a thread, unless it is made of records, which are not looked into: it may have a
quarter of a million elements, which take a fifth of a second."""

DECODED_BEFORE_SLOT_BYTES_MAX = 16 * KIB
"""A longer request that reads many things is decoded when it has one of the scheduler's slots: decoded, a request takes
up to 25 times its bytes, and hundreds of connections may wait."""

FRAME_RATE_BYTES_MIN = 64 * KIB
"""What must come of a large request in a second while others wait for memory: any line for megabytes can do that."""

FRAME_RATE_SECONDS = 2.0
"""The time over which that is measured: a lost packet or two take a second to come again."""

PEER_MESSAGE_BYTES_MAX = 24 * MIB
"""From node to node: a proposal of the largest size (`RaftConfig.entry_bytes_max`, 16 MiB) with room to spare; nothing
else comes near."""

CLUSTER_MEMBERS_MAX = 64
"""Every member is sent every entry by the leader; nobody runs a quorum of this size, but learners may be many."""

CONNECTIONS_MAX = 10_000
"""Each costs a descriptor and a few kB. Kafka has no limit by default, and then dies of descriptors."""

TLS_HANDSHAKES_MAX = 1024
"""TLS handshakes under way. Each takes up to 100 kB, and a descriptor. Beyond it the oldest of the address that has
most of them has to go, so that who floods a port pushes out their own."""

TLS_HANDSHAKES_PER_ADDRESS_MAX = 256
"""Those from one address. Clients that all come back at once, after a node was away, are let in by the hundred."""

TLS_HANDSHAKE_SECONDS_MAX = 10.0
"""A handshake is two trips there and back, and a millisecond's work."""

TLS_HANDSHAKE_BYTES_MAX = 128 * KIB
"""What comes of a handshake before it is done: some kilobytes, or some dozens with a long chain of certificates. What a
client sends right behind it may come with the last of it, which is one read of 64 KiB."""

TLS_SUBJECT_CHARACTERS_MAX = 1024
"""The subject of a client's certificate, which rules are matched against: a microsecond for each character and each
part of a rule. X.520 has 64 characters for each of its names."""

CONNECTION_IDLE_SECONDS_MAX = 600.0
"""Kafka's `connections.max.idle.ms`."""

REQUESTS_QUEUED_MAX = 64
"""Requests of one connection that wait for the one being handled. Clients keep 5 to 100 in flight; beyond this the
socket is simply not read."""

RESPONSES_UNSENT_BYTES_MAX = 64 * KIB
"""Beyond this, and what the system holds of a connection's responses (some megabytes), they count as not read, and its
next request is not handled: a client has one large answer at a time."""

RESPONSES_BYTES_MAX = 64 * MIB
"""Responses of all connections that clients have not read. The nearer to it, the less a fetch is answered with; beyond
it other large answers wait, and those which are not read end their connection."""

RESPONSE_BYTES_LEAST = 64 * KIB
"""What anybody may always be answered with: a consumer gets on, however many others do not read."""

RESPONSE_STUCK_SECONDS_MAX = 3.0
"""How long a client may read nothing of its responses, or too little, while there is no memory for those of others."""

RESPONSE_RATE_BYTES_MIN = 64 * KIB
"""What a client must read in a second while there is no memory for others: below that it counts as reading nothing."""

ANSWERS_HELD_BYTES_MAX = 16 * MIB
"""Large answers that wait until others are read: those of some hundred clients that ask for thousands of partitions.
Beyond it they end their connection."""

ANSWER_HELD_SECONDS_MAX = 10.0
"""How long each waits: by then those who do not read are closed three times over, and no client has given up."""

FETCH_RESPONSE_BYTES_MAX = 16 * MIB
"""One answer to a fetch, whatever it asks for (but always a whole batch): others wait a millisecond for each MB that is
read. The next fetch of a session begins with the partitions that were not reached."""

ANSWER_BYTES_MAX = 40 * MIB
"""What a node tells of topics, configs or groups in one answer: a million and a half partitions, or the configs of ten
thousand topics. It is in memory twice for a moment. What would not fit is answered with an error, one by one."""

FETCH_WAIT_SECONDS_MAX = 300.0
"""A fetch that asks to wait longer is answered by then: no client waits that long for one."""

FETCH_PARTITIONS_MAX = 50_000
"""Partitions that one fetch may name: far more than a consumer has on one node. Each takes a few microseconds."""

REPLICA_FETCH_PARTITION_BYTES_MAX = 3 * MIB
"""The most of one partition in one answer to a follower, unless a single batch is larger: three of the largest batches
that clients send by default. A follower that is behind syncs them together. Kafka's `replica.fetch.max.bytes` is
1 MiB."""

PARTITION_UNCOMMITTED_BYTES_MAX = 2 * REPLICA_FETCH_PARTITION_BYTES_MAX
"""Uncommitted bytes of a replicated partition up to which a connection may send produce requests ahead of their
responses. A follower can fetch the second half while it syncs the first; more would only lengthen its backlog."""

UNCOMMITTED_BYTES_MAX = 64 * MIB
"""Uncommitted bytes of all partitions of a node up to which connections may do the same. A node keeps as many bytes in
memory for its followers (`RECENT_BYTES_MAX`); beyond it, they read from files and fall further behind."""

FETCH_SESSIONS_MAX = 1000
"""Kafka's `max.incremental.fetch.session.cache.slots`."""

FETCH_SESSION_PARTITIONS_MAX = 100_000
"""Partitions that all sessions together may remember; beyond it fetches are sessionless (id 0), which is legal."""

FETCH_SESSION_IDLE_SECONDS = 120.0
"""A session unused this long may make room for a new one. Kafka's `min.incremental.fetch.session.eviction.ms`."""

DECOMPRESSED_BYTES_MAX = 100 * MIB
"""What may come out of one batch. An honest producer hardly ever makes one that it could not have
sent as it is; a bomb stops here."""

OPENED_BYTES_MAX = 40 * MIB
"""What a node takes out of the batches of one request (and more, in proportion, for a large one), where it has to look
at records: compacted topics, another codec, old formats, searches by time. It bounds the memory that 11 kB can ask for,
which is twice as much where zstd is told to remember all of it. Java's producer, which counts its batches compressed,
meets it at a ratio of 1:40, and then sends smaller ones."""

OPENED_RECORDS_MAX = 1_000_000
"""Records that a node looks at for one request (and more, in proportion, for a large one): about a second's work.
librdkafka's largest `batch.num.messages`."""

OPENED_ON_LOOP_BYTES_MAX = 1 * MIB
OPENED_ON_LOOP_RECORDS_MAX = 5000
"""What is opened for one request while all others wait: some milliseconds' work. More than that is done in a thread,
and only the connection that asked for it waits."""

CONVERTED_BYTES_MAX = 16 * MIB
"""What may be in one compressed message of the old formats (Produce 0 to 2), and in a record that is to become one
(Fetch 0 to 3): while it is converted there are several copies of it. Clients of that time send 1 MB."""

CONVERTED_AT_ONCE_BYTES_MAX = 4 * MIB
"""What is converted for one partition of one Fetch 0 to 3: the next one goes on where this ends, if need be in the
midst of a batch."""

RECORD_ERRORS_MAX = 1000
"""Records of one batch that are named when it is refused for them: the answer must not grow with what was in it."""

TOPIC_NAME_CHARACTERS_MAX = 249
"""Kafka's own: a topic name and a partition number must fit a file name."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Partitions that one CreateTopics or CreatePartitions may make. Kafka's controller has the same limit."""

TOPIC_PARTITIONS_MAX = 10_000
"""Partitions of one topic."""

OPEN_FILES_MAX = 512
"""Segment files held open at once; the common soft limit of a process is 1024."""

PARTITIONS_PER_PAGE_MAX = 2000
"""Partitions in one DescribeTopicPartitions answer. Kafka's `max.request.partition.size.limit`."""

UNAUTHENTICATED_FRAME_BYTES_MAX = 64 * KIB
"""One request of a client that has not said yet who it is: the longest tokens have some kilobytes."""

LOGIN_BYTES_MAX = 4 * KIB
"""One message of PLAIN or SCRAM: a name, a password and some random characters. Expressions run over it on the loop."""

AUTHENTICATION_SECONDS_MAX = 10.0
"""How long a client may take to say who it is. A few round trips do; a slow line and a busy machine have their time."""

AUTHENTICATIONS_AT_WORK_MAX = 2
"""Passwords and tokens that are looked at in threads at once: each keeps a processor busy for some milliseconds."""

AUTHENTICATIONS_WAITING_MAX = 1000
"""Those that wait for it: seconds' work. Beyond it connections end, and clients come again."""

JWKS_BYTES_MAX = 1 * MIB
"""The keys of tokens, as an address tells them: some hundred of the largest."""

TRANSACTIONAL_ID_CHARACTERS_MAX = 512
"""A new transactional id. Every node keeps each id for `transactional.id.expiration.ms`, in memory and in the metadata
log. Kafka Streams, Connect and Flink build theirs from a prefix, a UUID and some numbers."""

TRANSACTIONAL_IDS_PER_CLIENT_MAX = 50_000
"""New transactional ids that one principal from one address may create through one node within
`transactional.id.expiration.ms`: half of all, so that one client cannot lock out the others."""

PRODUCER_IDS_PER_CLIENT_MAX = 10_000
"""Producer ids that one principal from one address is given at once by one node; all clients of a large application may
share an address and start together."""

PRODUCER_IDS_PER_SECOND = 100
"""Producer ids that such a client is given per second beyond that: short-lived processes take one each."""

PRODUCERS_PER_NODE_MAX = 200_000
"""Producers that all partitions of a node remember together, 0.5 to 1.2 kB each. Beyond it the partition that remembers
most forgets those that have been idle longest, and no longer recognises their retries."""

GROUP_ID_CHARACTERS_MAX = 512
"""The id of a new group, which every node keeps in memory and in the metadata log until the group expires."""

GROUP_INSTANCE_ID_CHARACTERS_MAX = 249
"""The `group.instance.id` of a static member. Kafka's clients have the same limit."""

GROUP_PROTOCOL_CHARACTERS_MAX = 255
"""A protocol type ("consumer", "connect") or the name of an assignor, for each member of a group."""

GROUP_PROTOCOLS_MAX = 100
"""Protocols that one member supports. Clients send one to three."""

CLIENT_ID_CHARACTERS_MAX = 255
"""The part of a client id that a group keeps for each member. It is shown to administrators and decides nothing."""

CLIENT_SOFTWARE_CHARACTERS_MAX = 255
"""A client's name or version in ApiVersions, kept for each connection, authenticated or not."""

CONFIG_NAME_CHARACTERS_MAX = 255
"""The name of a config. Broker configs may have any name, since it may be a plugin's, and are in every snapshot."""

HOST_CHARACTERS_MAX = 255
"""The host of a node's address. DNS names have at most 253 characters."""

IMPORT_SOURCE_CHARACTERS_MAX = 1000
"""The description of an import's source, usually a path. The command that begins an import takes no longer one."""

PIPELINE_NAME_CHARACTERS_MAX = 249
"""The name of a pipeline, kept while its driver waits for questions: as long as a topic's name."""

ACLS_MAX = 100_000
"""ACLs in all. Each takes half a kilobyte on every node, and a place in every snapshot; nobody looks after as many."""

ACL_NAME_CHARACTERS_MAX = 1024
"""A resource, a principal or a host in an ACL: the names of certificates have some hundred characters."""

ACLS_PER_REQUEST_MAX = 10_000
"""ACLs that one CreateAcls or DeleteAcls may change. Kafka's controller has the same limit."""

DECISIONS_KEPT_MAX = 20_000
"""Decisions about who may do what, which are kept until ACLs change. Beyond it all of them go, and are made again."""

DECISION_NAME_CHARACTERS_MAX = 255
"""A decision about a resource with a longer name is made each time: what strangers make up is not kept for long."""

ACL_FILTERS_MAX = 100
"""Filters of one DeleteAcls that leave something open: for each, all ACLs are looked at."""
QUOTA_ENTITIES_MAX = 10_000
"""Users, clients, pairs of them and addresses that have quotas of their own: all are in every snapshot, and in one
answer of DescribeClientQuotas. Whoever has more gives quotas to defaults."""

QUOTA_NAME_CHARACTERS_MAX = 1000
"""The name of a user or a client in a quota: the longest names of certificates have some hundreds."""

QUOTA_ALTERATIONS_MAX = 1000
"""Entities whose quotas one request may change, in one command: each takes some 10 µs of the loop of every node."""

QUOTA_BUCKETS_MAX = 10_000
"""Whose use of a quota a node remembers, for each key: as many as may be connected. Beyond it, whoever used it longest
ago begins anew."""

THROTTLE_SECONDS_MAX = 3600.0
"""How long a client is made to wait for one request: Kafka tells it in 31 bits of milliseconds, and no client waits
longer than minutes. What is not paid for by then is waited for after the next request."""

SAMPLE_BYTES_MAX = 64 * KIB
"""What a driver answers who was asked for rows of a table: twenty rows of fifty columns, each as long as a line."""

SAMPLES_ASKED_MAX = 64
"""Questions for rows that wait for drivers at one node, each of which may keep an answer of the above for a moment."""

SAMPLES_ASKED_PER_ACCOUNT_MAX = 16
"""Questions for rows of one principal, or of one client network without a name: each may wait for 30 seconds."""
