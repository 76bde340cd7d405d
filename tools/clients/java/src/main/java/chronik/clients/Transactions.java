package chronik.clients;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Commands for transactional producers; tests control each step. */
final class Transactions {
    private static final long SEND_TIMEOUT_S = 60;
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();

    static void register(Map<String, Main.Command> commands) {
        commands.put("open_producer", Transactions::open);
        commands.put("begin_transaction", arguments -> {
            of(arguments).beginTransaction();
            return null;
        });
        commands.put("send_in_transaction", Transactions::send);
        commands.put("send_offsets", arguments -> {
            var group = new ConsumerGroupMetadata(arguments.get("group").asText());
            of(arguments).sendOffsetsToTransaction(Wire.offsets(arguments.get("offsets")), group);
            return null;
        });
        commands.put("commit_transaction", arguments -> {
            of(arguments).commitTransaction();
            return null;
        });
        commands.put("abort_transaction", arguments -> {
            of(arguments).abortTransaction();
            return null;
        });
        commands.put("commit_many", Transactions::commitMany);
        commands.put("close_producer", arguments -> {
            // Close without waiting and without completing an open transaction.
            PRODUCERS.remove(arguments.get("producer").asText()).close(Duration.ZERO);
            return null;
        });
    }

    private static KafkaProducer<byte[], byte[]> of(JsonNode arguments) {
        return PRODUCERS.get(arguments.get("producer").asText());
    }

    private static Object open(JsonNode arguments) {
        int timeout = arguments.get("timeout_ms").asInt();
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", arguments.get("bootstrap").asText(),
                "transactional.id", arguments.get("transactional_id").asText(),
                "transaction.timeout.ms", timeout);
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        PRODUCERS.put(arguments.get("producer").asText(), producer);
        producer.initTransactions();
        return null;
    }

    private static Object send(JsonNode arguments) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode fields : arguments.get("records")) {
            sent.add(of(arguments).send(Wire.toWrite(arguments.get("topic").asText(), fields)));
        }
        of(arguments).flush();
        for (Future<RecordMetadata> future : sent) {
            future.get(SEND_TIMEOUT_S, TimeUnit.SECONDS);
        }
        return null;
    }

    private static Object commitMany(JsonNode arguments) {
        int first = arguments.get("first").asInt();
        for (int number = first; number < first + arguments.get("count").asInt(); number++) {
            of(arguments).beginTransaction();
            byte[] value = Integer.toString(number).getBytes();
            of(arguments).send(new ProducerRecord<>(arguments.get("topic").asText(), 0, null, value));
            // The client checks for records in flight before it processes new calls. With an epoch per transaction, a
            // commit that arrives in between may be sent before the records (once in ten thousand times).
            of(arguments).flush();
            of(arguments).commitTransaction();
        }
        return null;
    }

    private Transactions() {}
}
