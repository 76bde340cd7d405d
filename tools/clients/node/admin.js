// Admin commands with kafkajs, with the same arguments and results as in the other drivers. kafkajs can only replace all
// configs of a resource (`alter_configs_whole`), not single ones.
"use strict";

const { ConfigResourceTypes, ConfigSource } = require("kafkajs");

const TIMEOUT_MS = 30_000;
const SOURCE_NAMES = {
  [ConfigSource.TOPIC_CONFIG]: "DYNAMIC_TOPIC_CONFIG",
  [ConfigSource.DYNAMIC_BROKER_CONFIG]: "DYNAMIC_BROKER_CONFIG",
  [ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG]: "DYNAMIC_DEFAULT_BROKER_CONFIG",
  [ConfigSource.STATIC_BROKER_CONFIG]: "STATIC_BROKER_CONFIG",
  [ConfigSource.DEFAULT_CONFIG]: "DEFAULT_CONFIG",
};
const configType = (kind) => ConfigResourceTypes[kind.toUpperCase()];

const newTopic = ([topic, { partitions = -1, replication_factor: replicationFactor = -1, configs = {} }]) => ({
  topic,
  numPartitions: partitions,
  replicationFactor,
  configEntries: Object.entries(configs).map(([name, value]) => ({ name, value })),
});

function administration(kafka) {
  const withAdmin = (action) => async (given) => {
    const admin = kafka(given.bootstrap).admin();
    await admin.connect();
    try {
      return (await action(admin, given)) ?? null;
    } finally {
      await admin.disconnect();
    }
  };
  const commands = {
    async create_topics(admin, { topics, validate_only: validateOnly = false }) {
      const wanted = Object.entries(topics).map(newTopic);
      const isCreated = await admin.createTopics({ topics: wanted, validateOnly, timeout: TIMEOUT_MS });
      if (!isCreated) throw Object.assign(new Error("a topic exists already"), { type: "TOPIC_ALREADY_EXISTS" });
    },
    list_topics: (admin) => admin.listTopics(),
    async describe_topics(admin, { topics }) {
      const described = await admin.fetchTopicMetadata({ topics });
      const fields = ({ partitionId, leader, replicas, isr }) => ({ partition: partitionId, leader, replicas, isr });
      const byPartition = (one, other) => one.partition - other.partition;
      return Object.fromEntries(described.topics.map((each) => [each.name, each.partitions.map(fields).sort(byPartition)]));
    },
    async create_partitions(admin, { topic, total }) {
      await admin.createPartitions({ topicPartitions: [{ topic, count: total }], timeout: TIMEOUT_MS });
    },
    async delete_topics(admin, { topics }) {
      await admin.deleteTopics({ topics, timeout: TIMEOUT_MS });
    },
    async alter_configs_whole(admin, { kind, name, configs }) {
      const configEntries = Object.entries(configs).map(([key, value]) => ({ name: key, value }));
      await admin.alterConfigs({ validateOnly: false, resources: [{ type: configType(kind), name, configEntries }] });
    },
    async describe_configs(admin, { kind, name }) {
      const { resources } = await admin.describeConfigs({
        includeSynonyms: true,
        resources: [{ type: configType(kind), name }],
      });
      const fields = (entry) => ({
        value: entry.configValue,
        source: SOURCE_NAMES[entry.configSource],
        read_only: entry.readOnly,
        sensitive: entry.isSensitive,
      });
      return Object.fromEntries(resources[0].configEntries.map((entry) => [entry.configName, fields(entry)]));
    },
    async describe_cluster(admin) {
      const { brokers, controller, clusterId } = await admin.describeCluster();
      const nodes = brokers.map(({ nodeId, host, port }) => ({ id: nodeId, host, port }));
      return { cluster_id: clusterId, controller, nodes };
    },
    async list_groups(admin) {
      const { groups } = await admin.listGroups(); // without states
      return Object.fromEntries(groups.map(({ groupId }) => [groupId, ""]));
    },
    async describe_group(admin, { group }) {
      const { groups } = await admin.describeGroups([group]);
      const [{ state, protocol, members }] = groups;
      return { state, protocol, members: members.map(({ clientId }) => ({ client_id: clientId })) };
    },
    async group_offsets(admin, { group }) {
      const topics = await admin.fetchOffsets({ groupId: group });
      return topics.flatMap(({ topic, partitions }) => partitions.map(({ partition, offset, metadata }) => [topic, partition, Number(offset), metadata]));
    },
    async alter_group_offsets(admin, { group, offsets }) {
      for (const topic of new Set(offsets.map(([name]) => name))) {
        const partitions = offsets
          .filter(([name]) => name === topic)
          .map(([, partition, offset, metadata]) => ({ partition, offset: String(offset), metadata }));
        await admin.setOffsets({ groupId: group, topic, partitions });
      }
    },
    async delete_group(admin, { group }) {
      await admin.deleteGroups([group]);
    },
  };
  return Object.fromEntries(Object.entries(commands).map(([name, action]) => [name, withAdmin(action)]));
}

module.exports = { administration };
