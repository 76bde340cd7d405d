package chronik.clients;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Admin commands, with the same arguments and results as in the other drivers. */
final class Administration {
    private static final int REQUEST_TIMEOUT_MS = 30_000;
    private static final Map<String, Admin> CLIENTS = new HashMap<>();

    /** A command that uses the admin client of the broker in the arguments. */
    interface AdminCommand {
        Object run(Admin admin, JsonNode arguments) throws Exception;
    }

    static void register(Map<String, Main.Command> commands) {
        Map<String, AdminCommand> all = new TreeMap<>();
        all.put("create_topics", Administration::createTopics);
        commands.put("create_topics_by_threads", Administration::createTopicsByThreads);
        all.put("list_topics", (admin, arguments) -> admin.listTopics().names().get());
        all.put("describe_topics", Administration::describeTopics);
        all.put("describe_topic_partitions", Administration::describeTopicPartitions);
        all.put("create_partitions", Administration::createPartitions);
        all.put("delete_topics", (admin, arguments) ->
                admin.deleteTopics(TopicCollection.ofTopicNames(Wire.texts(arguments.get("topics")))).all().get());
        all.put("alter_configs_incrementally", Administration::alterConfigs);
        all.put("describe_configs", Administration::describeConfigs);
        all.put("delete_records", Administration::deleteRecords);
        all.put("list_offsets", Administration::listOffsets);
        all.put("describe_cluster", Administration::describeCluster);
        all.put("describe_log_dirs", Administration::describeLogDirs);
        all.put("list_groups", Administration::listGroups);
        all.put("describe_group", Administration::describeGroup);
        all.put("group_offsets", Administration::groupOffsets);
        all.put("alter_group_offsets", (admin, arguments) ->
                admin.alterConsumerGroupOffsets(group(arguments), Wire.offsets(arguments.get("offsets"))).all().get());
        all.put("delete_group", (admin, arguments) ->
                admin.deleteConsumerGroups(List.of(group(arguments))).all().get());
        all.forEach((name, command) ->
                commands.put(name, arguments -> command.run(client(arguments.get("bootstrap").asText()), arguments)));
    }

    private static Admin client(String bootstrap) {
        return CLIENTS.computeIfAbsent(bootstrap, Administration::newClient);
    }

    private static Admin newClient(String bootstrap) {
        return Admin.create(Map.of(
                "bootstrap.servers", bootstrap,
                "default.api.timeout.ms", REQUEST_TIMEOUT_MS,
                "request.timeout.ms", REQUEST_TIMEOUT_MS));
    }

    private static Object createTopics(Admin admin, JsonNode arguments) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        arguments.get("topics").fields().forEachRemaining(each -> topics.add(newTopic(each.getKey(), each.getValue())));
        boolean validateOnly = arguments.path("validate_only").asBoolean(false);
        return admin.createTopics(topics, new CreateTopicsOptions().validateOnly(validateOnly)).all().get();
    }

    /** Creates one topic per request, from threads with an admin client each. */
    private static Object createTopicsByThreads(JsonNode arguments) throws Exception {
        String bootstrap = arguments.get("bootstrap").asText();
        List<String> names = Wire.texts(arguments.get("topics"));
        int threads = arguments.get("threads").asInt();
        int partitions = arguments.get("partitions").asInt();
        short replicationFactor = (short) arguments.get("replication_factor").asInt();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Future<?>> running = new ArrayList<>();
            for (int first = 0; first < threads; first++) {
                int start = first;
                running.add(pool.submit(() -> {
                    try (Admin admin = newClient(bootstrap)) {
                        for (int index = start; index < names.size(); index += threads) {
                            NewTopic topic = new NewTopic(names.get(index), partitions, replicationFactor);
                            admin.createTopics(List.of(topic)).all().get();
                        }
                    }
                    return null;
                }));
            }
            for (Future<?> each : running) {
                each.get();
            }
        } finally {
            pool.shutdownNow();
        }
        return null;
    }

    private static NewTopic newTopic(String name, JsonNode fields) {
        Map<String, String> configs = new HashMap<>();
        fields.path("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        if (!fields.has("assignments")) {
            int partitions = fields.path("partitions").asInt(-1);
            return new NewTopic(name, partitions, (short) fields.path("replication_factor").asInt(-1)).configs(configs);
        }
        Map<Integer, List<Integer>> assignments = new HashMap<>();
        fields.get("assignments").fields().forEachRemaining(each -> {
            List<Integer> replicas = new ArrayList<>();
            each.getValue().forEach(id -> replicas.add(id.asInt()));
            assignments.put(Integer.parseInt(each.getKey()), replicas);
        });
        return new NewTopic(name, assignments).configs(configs);
    }

    private static Object describeTopics(Admin admin, JsonNode arguments) throws Exception {
        Map<String, Object> described = new TreeMap<>();
        admin.describeTopics(Wire.texts(arguments.get("topics"))).allTopicNames().get().forEach((name, topic) ->
                described.put(name, topic.partitions().stream().map(partition -> Map.of(
                        "partition", partition.partition(),
                        "leader", partition.leader().id(),
                        "replicas", ids(partition.replicas()),
                        "isr", ids(partition.isr()))).collect(Collectors.toList())));
        return described;
    }

    /** Uses the DescribeTopicPartitions API with two partitions per page, to test its cursor. */
    private static Object describeTopicPartitions(Admin admin, JsonNode arguments) throws Exception {
        DescribeTopicsOptions pages = new DescribeTopicsOptions().partitionSizeLimitPerResponse(2);
        String topic = arguments.get("topic").asText();
        TopicDescription described = admin.describeTopics(List.of(topic), pages).allTopicNames().get().get(topic);
        return described.partitions().stream().map(each -> each.partition()).collect(Collectors.toList());
    }

    private static Object createPartitions(Admin admin, JsonNode arguments) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(arguments.get("total").asInt());
        return admin.createPartitions(Map.of(arguments.get("topic").asText(), total)).all().get();
    }

    private static Object alterConfigs(Admin admin, JsonNode arguments) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (JsonNode change : arguments.get("changes")) {
            String value = change.get(2).isNull() ? null : change.get(2).asText();
            var operation = AlterConfigOp.OpType.valueOf(change.get(1).asText().toUpperCase());
            changes.add(new AlterConfigOp(new ConfigEntry(change.get(0).asText(), value), operation));
        }
        return admin.incrementalAlterConfigs(Map.of(resource(arguments), changes)).all().get();
    }

    private static Object describeConfigs(Admin admin, JsonNode arguments) throws Exception {
        ConfigResource resource = resource(arguments);
        var options = new DescribeConfigsOptions().includeSynonyms(true);
        Map<String, Object> described = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
            Map<String, Object> config = new HashMap<>();
            config.put("value", entry.value());
            config.put("source", entry.source().name());
            config.put("read_only", entry.isReadOnly());
            config.put("sensitive", entry.isSensitive());
            config.put("synonyms", entry.synonyms().stream()
                    .map(each -> List.of(each.name(), String.valueOf(each.value()), each.source().name()))
                    .collect(Collectors.toList()));
            described.put(entry.name(), config);
        }
        return described;
    }

    private static Object deleteRecords(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition at = partition(arguments);
        RecordsToDelete before = RecordsToDelete.beforeOffset(arguments.get("before").asLong());
        return admin.deleteRecords(Map.of(at, before)).lowWatermarks().get(at).get().lowWatermark();
    }

    private static Object listOffsets(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition at = partition(arguments);
        var found = admin.listOffsets(Map.of(at, offsetSpec(arguments.get("spec")))).partitionResult(at).get();
        return Map.of("offset", found.offset(), "timestamp_ms", found.timestamp());
    }

    private static OffsetSpec offsetSpec(JsonNode spec) {
        if (spec.isNumber()) {
            return OffsetSpec.forTimestamp(spec.asLong());
        }
        Map<String, OffsetSpec> named = Map.of(
                "earliest", OffsetSpec.earliest(),
                "latest", OffsetSpec.latest(),
                "max_timestamp", OffsetSpec.maxTimestamp());
        return named.get(spec.asText());
    }

    private static Object describeCluster(Admin admin, JsonNode arguments) throws Exception {
        var described = admin.describeCluster();
        return Map.of(
                "cluster_id", described.clusterId().get(),
                "controller", described.controller().get().id(),
                "nodes", described.nodes().get().stream()
                        .map(node -> Map.of("id", node.id(), "host", node.host(), "port", node.port()))
                        .collect(Collectors.toList()));
    }

    private static Object describeLogDirs(Admin admin, JsonNode arguments) throws Exception {
        Map<Integer, Long> sizes = new TreeMap<>();
        for (var folders : admin.describeLogDirs(ids(admin.describeCluster().nodes().get())).allDescriptions().get().values()) {
            folders.values().forEach(folder -> folder.replicaInfos().forEach((at, replica) -> {
                if (at.topic().equals(arguments.get("topic").asText())) {
                    sizes.put(at.partition(), replica.size());
                }
            }));
        }
        return sizes.entrySet().stream().map(each -> List.of(each.getKey(), each.getValue())).collect(Collectors.toList());
    }

    private static Object listGroups(Admin admin, JsonNode arguments) throws Exception {
        Map<String, String> groups = new TreeMap<>();
        admin.listConsumerGroups().all().get().forEach(each ->
                groups.put(each.groupId(), each.state().map(Object::toString).orElse("")));
        return groups;
    }

    private static Object describeGroup(Admin admin, JsonNode arguments) throws Exception {
        String group = group(arguments);
        ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("state", described.state().toString());
        answer.put("protocol", described.partitionAssignor());
        answer.put("members", described.members().stream().map(member -> Map.of(
                "client_id", member.clientId(),
                "assignment", member.assignment().topicPartitions().stream().map(Wire::seat).collect(Collectors.toList())))
                .collect(Collectors.toList()));
        return answer;
    }

    private static Object groupOffsets(Admin admin, JsonNode arguments) throws Exception {
        List<List<Object>> offsets = new ArrayList<>();
        admin.listConsumerGroupOffsets(group(arguments)).partitionsToOffsetAndMetadata().get().forEach((at, found) ->
                offsets.add(List.of(at.topic(), at.partition(), found.offset(), found.metadata())));
        return offsets;
    }

    private static String group(JsonNode arguments) {
        return arguments.get("group").asText();
    }

    private static TopicPartition partition(JsonNode arguments) {
        return new TopicPartition(arguments.get("topic").asText(), arguments.get("partition").asInt());
    }

    private static ConfigResource resource(JsonNode arguments) {
        ConfigResource.Type kind = ConfigResource.Type.valueOf(arguments.get("kind").asText().toUpperCase());
        return new ConfigResource(kind, arguments.get("name").asText());
    }

    private static List<Integer> ids(java.util.Collection<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    private Administration() {}
}
