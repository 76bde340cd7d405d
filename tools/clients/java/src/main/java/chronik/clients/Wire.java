package chronik.clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Conversion of records and partitions to and from JSON. */
final class Wire {
    static final ObjectMapper JSON = new ObjectMapper();

    static ProducerRecord<byte[], byte[]> toWrite(String topic, JsonNode fields) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : fields.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Integer partition = fields.get("partition").isNull() ? null : fields.get("partition").asInt();
        Long timestamp = fields.get("timestamp_ms").isNull() ? null : fields.get("timestamp_ms").asLong();
        return new ProducerRecord<>(topic, partition, timestamp, bytes(fields.get("key")), bytes(fields.get("value")), headers);
    }

    static ObjectNode received(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode fields = JSON.createObjectNode();
        fields.put("topic", record.topic()).put("partition", record.partition()).put("offset", record.offset());
        fields.put("key", text(record.key())).put("value", text(record.value()));
        fields.put("timestamp_ms", record.timestamp() < 0 ? null : record.timestamp());
        ArrayNode headers = fields.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return fields;
    }

    static List<Object> seat(TopicPartition partition) {
        return List.of(partition.topic(), partition.partition());
    }

    /** Parses offsets to commit from arrays of topic, partition, offset and metadata. */
    static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode array) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode each : array) {
            TopicPartition at = new TopicPartition(each.get(0).asText(), each.get(1).asInt());
            offsets.put(at, new OffsetAndMetadata(each.get(2).asLong(), each.get(3).asText()));
        }
        return offsets;
    }

    static List<String> texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(each -> texts.add(each.asText()));
        return texts;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private Wire() {}
}
