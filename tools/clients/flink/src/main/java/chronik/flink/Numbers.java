package chronik.flink;

import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Writes the numbers below COUNT exactly once: {@code Numbers BOOTSTRAP TOPIC COUNT TRANSACTIONAL_ID_PREFIX}. It fails once,
 * within a transaction, and resumes from its last checkpoint.
 */
public final class Numbers {
    private static final int CHECKPOINT_MS = 500;
    private static final AtomicBoolean HAS_FAILED = new AtomicBoolean();

    public static void main(String[] arguments) throws Exception {
        long count = Long.parseLong(arguments[2]);
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1");
        settings.setString("restart-strategy.fixed-delay.delay", "100 ms");
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        environment.enableCheckpointing(CHECKPOINT_MS);
        environment.fromSequence(0, count - 1).map(number -> slowly(number, count)).returns(String.class).sinkTo(
                KafkaSink.<String>builder()
                        .setBootstrapServers(arguments[0])
                        .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                                .setTopic(arguments[1])
                                .setValueSerializationSchema(new SimpleStringSchema())
                                .build())
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(arguments[3])
                        .setProperty("transaction.timeout.ms", "60000")
                        .build());
        environment.execute("numbers");
    }

    /** Slows the job down, so that the failure happens between two of several checkpoints. */
    private static String slowly(long number, long count) throws Exception {
        Thread.sleep(1);
        if (number == count / 2 && HAS_FAILED.compareAndSet(false, true)) {
            throw new IllegalStateException("as planned");
        }
        return Long.toString(number);
    }

    private Numbers() {}
}
