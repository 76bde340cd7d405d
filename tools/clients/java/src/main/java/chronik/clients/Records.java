package chronik.clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Commands to write and read records, and the client's capabilities. */
final class Records {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long SEND_TIMEOUT_S = 60;

    static void register(Map<String, Main.Command> commands) {
        commands.put("capabilities", arguments -> capabilities());
        commands.put("produce", Records::produce);
        commands.put("consume", Records::consume);
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group, Map<String, Object> options) {
        Map<String, Object> settings = new HashMap<>(options);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static Map<String, Object> capabilities() {
        return Map.ofEntries(
                Map.entry("version", AppInfoParser.getVersion()),
                Map.entry("codecs", List.of("none", "gzip", "snappy", "lz4", "zstd")),
                Map.entry("headers", true),
                Map.entry("null_headers", true),
                Map.entry("null_key_and_value", true),
                Map.entry("timestamps", true),
                Map.entry("idempotence", true),
                Map.entry("assignors", List.of("range", "cooperative-sticky")),
                Map.entry("commits", true),
                Map.entry("static_members", true),
                Map.entry("transactions", true));
    }

    private static Object produce(JsonNode arguments) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments.get("bootstrap").asText(),
                "compression.type", arguments.get("codec").asText(),
                "enable.idempotence", arguments.path("idempotent").asBoolean(false),
                "acks", "all",
                "linger.ms", 20);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode fields : arguments.get("records")) {
                sent.add(producer.send(Wire.toWrite(arguments.get("topic").asText(), fields)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                future.get(SEND_TIMEOUT_S, TimeUnit.SECONDS);
            }
        }
        return null;
    }

    private static Object consume(JsonNode arguments) {
        Map<String, Integer> missing = new HashMap<>();
        arguments.get("topics").fields().forEachRemaining(topic -> missing.put(topic.getKey(), topic.getValue().asInt()));
        String group = arguments.get("group").isNull() ? null : arguments.get("group").asText();
        long deadline = System.nanoTime() + (long) (arguments.get("timeout_s").asDouble() * 1e9);
        ObjectNode answer = Wire.JSON.createObjectNode();
        ArrayNode records = answer.putArray("records");
        answer.putNull("problem");
        Map<String, Object> options =
                arguments.hasNonNull("isolation") ? Map.of("isolation.level", arguments.get("isolation").asText()) : Map.of();
        try (var consumer = consumer(arguments.get("bootstrap").asText(), group, options)) {
            if (group == null) {
                consumer.assign(partitions(consumer, missing.keySet()));
            } else {
                consumer.subscribe(missing.keySet());
            }
            while (missing.values().stream().anyMatch(count -> count > 0) && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    missing.merge(record.topic(), -1, Integer::sum);
                    records.add(Wire.received(record));
                }
            }
            if (group != null) {
                consumer.commitSync();
            }
        } catch (RuntimeException failure) { // the records read so far are still reported
            return answer.put("problem", failure.toString());
        }
        missing.values().removeIf(count -> count <= 0);
        return missing.isEmpty() ? answer : answer.put("problem", "still missing at the deadline: " + missing);
    }

    private static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, Collection<String> topics) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (String topic : topics) {
            consumer.partitionsFor(topic).forEach(each -> partitions.add(new TopicPartition(topic, each.partition())));
        }
        return partitions;
    }

    private Records() {}
}
