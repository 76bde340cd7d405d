import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthenticationException;

/**
 * Writes records and reads them back with the settings of a file: {@code Secured.java FILE TOPIC COUNT PAUSE_MS}. It is
 * run from its source, with the jars of any version of Kafka's clients. Says {@code read COUNT}, or
 * {@code refused: MESSAGE} when it is not let in.
 */
public final class Secured {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.load(Files.newBufferedReader(Path.of(arguments[0]), StandardCharsets.UTF_8));
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try {
            write(settings, arguments[1], Integer.parseInt(arguments[2]), Long.parseLong(arguments[3]));
            System.out.println("read " + read(settings, arguments[1], Integer.parseInt(arguments[2])));
        } catch (AuthenticationException refused) {
            System.out.println("refused: " + refused.getMessage());
        }
        System.exit(0);
    }

    private static void write(Properties settings, String topic, int count, long pauseMs) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "value " + number)).get();
                Thread.sleep(pauseMs);
            }
        } catch (ExecutionException failure) {
            throw failure.getCause() instanceof AuthenticationException refused ? refused : failure;
        }
    }

    private static int read(Properties settings, String topic, int count) {
        int found = 0;
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (found < count && System.nanoTime() < deadline) {
                found += consumer.poll(Duration.ofMillis(200)).count();
            }
        }
        return found;
    }

    private Secured() {}
}
