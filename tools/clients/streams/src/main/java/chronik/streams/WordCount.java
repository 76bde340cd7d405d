package chronik.streams;

import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words exactly once: {@code WordCount BOOTSTRAP APPLICATION_ID INPUT OUTPUT FOLDER}. Lines are split
 * into words, which are repartitioned by an intermediate topic. Every change of a count is written, so that a reader of
 * committed records sees the counts 1, 2, 3, … of each word. Runs until it is killed; exits when it cannot continue, and must
 * then be restarted.
 */
public final class WordCount {
    private static final int EXIT_FATAL = 3;

    public static void main(String[] arguments) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.ByteArray(), Serdes.String()))
                .flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long()))
                .mapValues(count -> Long.toString(count))
                .toStream()
                .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(arguments));
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(EXIT_FATAL);
            }
        });
        streams.start();
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("replication.factor", 3);
        settings.put("topic.min.insync.replicas", 2);
        settings.put("num.stream.threads", 2);
        settings.put("commit.interval.ms", 100);
        settings.put("statestore.cache.max.bytes", 0); // write each change
        // Short, because tests wait for the session of a killed instance to expire.
        settings.put("consumer.session.timeout.ms", 6_000);
        settings.put("consumer.heartbeat.interval.ms", 1_000);
        settings.put("producer.transaction.timeout.ms", 10_000);
        return settings;
    }

    private WordCount() {}
}
