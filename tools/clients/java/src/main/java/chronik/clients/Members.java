package chronik.clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;

/** Group members. A consumer is bound to one thread, so each member polls in its own and runs commands between polls. */
final class Members {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long COMMAND_TIMEOUT_S = 30;
    private static final int HEARTBEAT_MS = 500;
    private static final int SESSION_MS = 10_000; // short, because tests wait for the session of a crashed member to expire
    private static final int STATIC_SESSION_MS = 30_000; // long, because a static member must return within it
    private static final Map<String, String> ASSIGNORS = Map.of(
            "range", RangeAssignor.class.getName(),
            "cooperative-sticky", CooperativeStickyAssignor.class.getName());
    private static final Map<String, Member> MEMBERS = new HashMap<>();

    static void register(Map<String, Main.Command> commands) {
        commands.put("join", arguments -> MEMBERS.put(arguments.get("member").asText(), new Member(arguments)) == null);
        commands.put("member", arguments -> MEMBERS.get(arguments.get("member").asText()).take());
        commands.put("commit", arguments -> MEMBERS.get(arguments.get("member").asText()).commit(arguments.get("offsets")));
        commands.put("leave", arguments -> MEMBERS.remove(arguments.get("member").asText()).leave());
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final ConcurrentLinkedQueue<Runnable> work = new ConcurrentLinkedQueue<>();
        private final CompletableFuture<Void> left = new CompletableFuture<>();
        private volatile boolean leaving;
        private ArrayNode received = Wire.JSON.createArrayNode();
        private List<List<Object>> assignment = List.of();
        private volatile int rebalances; // written by the polling thread only

        Member(JsonNode arguments) {
            boolean isStatic = arguments.hasNonNull("instance");
            Map<String, Object> options = new HashMap<>();
            options.put("session.timeout.ms", isStatic ? STATIC_SESSION_MS : SESSION_MS);
            options.put("heartbeat.interval.ms", HEARTBEAT_MS);
            if (isStatic) {
                options.put("group.instance.id", arguments.get("instance").asText());
            }
            if (!arguments.get("assignor").isNull()) {
                options.put("partition.assignment.strategy", ASSIGNORS.get(arguments.get("assignor").asText()));
            }
            consumer = Records.consumer(arguments.get("bootstrap").asText(), arguments.get("group").asText(), options);
            consumer.subscribe(Wire.texts(arguments.get("topics")), this);
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try (consumer) {
                while (!leaving) {
                    for (Runnable next = work.poll(); next != null; next = work.poll()) {
                        next.run();
                    }
                    show(consumer.poll(POLL));
                }
            } catch (RuntimeException failure) { // reported by the next take() and by leave()
                left.completeExceptionally(failure);
            }
            left.complete(null);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            rebalances += 1;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {} // only assignments are counted

        private synchronized void show(Iterable<ConsumerRecord<byte[], byte[]>> records) {
            records.forEach(record -> received.add(Wire.received(record)));
            assignment = consumer.assignment().stream().map(Wire::seat).collect(Collectors.toList());
        }

        /** Returns the assignment, the number of rebalances, and the records since the last call. */
        synchronized ObjectNode take() {
            ObjectNode state = Wire.JSON.createObjectNode();
            state.set("assignment", Wire.JSON.valueToTree(assignment));
            state.put("rebalances", rebalances);
            state.set("records", received);
            state.put("problem", left.isCompletedExceptionally() ? left.handle((v, why) -> why.toString()).join() : null);
            received = Wire.JSON.createArrayNode();
            return state;
        }

        Object commit(JsonNode offsets) throws Exception {
            Map<TopicPartition, OffsetAndMetadata> wanted = Wire.offsets(offsets);
            CompletableFuture<Void> done = new CompletableFuture<>();
            work.add(() -> {
                try {
                    consumer.commitSync(wanted);
                    done.complete(null);
                } catch (RuntimeException failure) { // reported to the caller of the command
                    done.completeExceptionally(failure);
                }
            });
            return done.get(COMMAND_TIMEOUT_S, TimeUnit.SECONDS);
        }

        Object leave() throws Exception {
            leaving = true;
            return left.get(COMMAND_TIMEOUT_S, TimeUnit.SECONDS);
        }
    }

    private Members() {}
}
