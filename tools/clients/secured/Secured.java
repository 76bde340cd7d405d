import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthenticationException;

/**
 * The command {@code write_and_read}, which tests TLS and SASL; see the tests' {@code drivers/secured.py}. It runs from source
 * with the jars of any version of Kafka's clients.
 */
public final class Secured {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int COUNT = 20;
    private static final int BURST = 10;
    private static final Duration PAUSE = Duration.ofMillis(20);
    private static final Duration READ_TIMEOUT = Duration.ofSeconds(30);
    private static final String PACKAGE = "org.apache.kafka.common.security.";

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // output of libraries must not be mistaken for a response
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(answer(JSON.readTree(line)));
        }
        System.exit(0);
    }

    private static ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode().put("id", request.get("id").asInt());
        try {
            boolean asked = request.get("command").asText().equals("write_and_read");
            answer.set("result", asked ? writeAndRead(request.get("arguments")) : JSON.createObjectNode());
        } catch (Exception failure) { // a failed command does not end the driver; the test decides
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            String name = cause instanceof AuthenticationException ? "LOGIN_REJECTED" : cause.getClass().getSimpleName();
            answer.putObject("error").put("name", name).put("message", String.valueOf(cause.getMessage()));
        }
        return answer;
    }

    private static JsonNode writeAndRead(JsonNode way) throws Exception {
        Map<String, Object> settings = settings(way);
        TopicPartition partition = new TopicPartition(way.get("topic").asText(), 0);
        List<Integer> read = new ArrayList<>();
        int written = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            List<Future<?>> sent = new ArrayList<>();
            while (written < COUNT) {
                written = write(producer, partition, written, 1, sent);
                acknowledged(sent); // one by one, because a rejected login is reported for each record
            }
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                while (way.hasNonNull("until") && !Files.exists(Path.of(way.get("until").asText()))) {
                    written = write(producer, partition, written, BURST, sent);
                    poll(consumer, PAUSE, read);
                    Thread.sleep(PAUSE.toMillis());
                }
                acknowledged(sent);
                long deadline = System.nanoTime() + READ_TIMEOUT.toNanos();
                while (read.size() < written && System.nanoTime() < deadline) {
                    poll(consumer, PAUSE, read);
                }
            }
        }
        ObjectNode result = JSON.createObjectNode().put("written", written);
        return result.set("read", JSON.valueToTree(read));
    }

    private static int write(
            KafkaProducer<String, String> producer, TopicPartition at, int written, int count, List<Future<?>> sent) {
        for (int number = written; number < written + count; number++) {
            sent.add(producer.send(new ProducerRecord<>(at.topic(), at.partition(), null, String.format("%1000d", number))));
        }
        return written + count;
    }

    private static void acknowledged(List<Future<?>> sent) throws Exception {
        for (Future<?> each : sent) {
            each.get();
        }
        sent.clear();
    }

    private static void poll(KafkaConsumer<String, String> consumer, Duration timeout, List<Integer> read) {
        consumer.poll(timeout).forEach(record -> read.add(Integer.parseInt(record.value().trim())));
    }

    private static Map<String, Object> settings(JsonNode way) {
        Map<String, Object> settings = new HashMap<>(Map.of(
                "bootstrap.servers", way.get("bootstrap").asText(),
                "security.protocol", (way.hasNonNull("mechanism") ? "SASL_" : "") + (way.hasNonNull("ca") ? "SSL" : "PLAINTEXT"),
                "max.block.ms", "30000",
                "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
                "value.serializer", "org.apache.kafka.common.serialization.StringSerializer",
                "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
                "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"));
        if (way.hasNonNull("ca")) {
            settings.putAll(Map.of("ssl.truststore.type", "PEM", "ssl.truststore.location", way.get("ca").asText()));
        }
        if (way.hasNonNull("pem")) {
            settings.putAll(Map.of("ssl.keystore.type", "PEM", "ssl.keystore.location", way.get("pem").asText()));
        }
        if (way.hasNonNull("mechanism")) {
            settings.putAll(login(way.get("mechanism").asText(), way.get("user").asText(), way.get("secret").asText()));
        }
        return settings;
    }

    private static Map<String, Object> login(String mechanism, String user, String secret) {
        if (!mechanism.equals("OAUTHBEARER")) {
            String module = PACKAGE + (mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule");
            String login = module + " required username=\"" + user + "\" password=\"" + secret + "\";";
            return Map.of("sasl.mechanism", mechanism, "sasl.jaas.config", login);
        }
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", secret);
        return Map.of(
                "sasl.mechanism", mechanism,
                "sasl.jaas.config", PACKAGE + "oauthbearer.OAuthBearerLoginModule required clientId=\"a\" clientSecret=\"b\";",
                "sasl.login.callback.handler.class", PACKAGE + "oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url", secret);
    }

    private Secured() {}
}
