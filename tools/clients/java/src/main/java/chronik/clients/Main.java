package chronik.clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Driver of the Java client: reads commands from standard input, one JSON object per line, and writes responses to standard
 * output. One process serves many commands, because a JVM starts slowly. The tests' {@code drivers/wire.py} describes the
 * protocol.
 */
public final class Main {
    /** A command that maps arguments to a result, which may be null. */
    interface Command {
        Object run(JsonNode arguments) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // output of libraries must not be mistaken for a response
        Map<String, Command> commands = new TreeMap<>();
        Records.register(commands);
        Members.register(commands);
        Administration.register(commands);
        Transactions.register(commands);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(Wire.JSON.writeValueAsString(answer(commands, Wire.JSON.readTree(line))));
        }
        System.exit(0); // members that are still in a group must not keep the process alive
    }

    private static ObjectNode answer(Map<String, Command> commands, JsonNode request) {
        ObjectNode answer = Wire.JSON.createObjectNode();
        answer.set("id", request.get("id"));
        try {
            Command command = commands.get(request.get("command").asText());
            if (command == null) {
                throw new IllegalArgumentException("no such command: " + request.get("command"));
            }
            answer.set("result", Wire.JSON.valueToTree(command.run(request.get("arguments"))));
        } catch (Exception failure) { // a failed command does not end the driver; the test decides
            Throwable cause = rootOf(failure);
            answer.putObject("error").put("name", nameOf(cause)).put("message", String.valueOf(cause.getMessage()));
        }
        return answer;
    }

    /** Returns the root cause: a failed producer repeats its first error as the cause of each later one. */
    private static Throwable rootOf(Throwable failure) {
        boolean wrapped = failure instanceof ExecutionException
                || failure instanceof CompletionException
                || failure.getClass() == KafkaException.class;
        return wrapped && failure.getCause() != null ? rootOf(failure.getCause()) : failure;
    }

    /** Returns Kafka's error name, or the class name of other exceptions. */
    private static String nameOf(Throwable cause) {
        return cause instanceof ApiException ? Errors.forException(cause).name() : cause.getClass().getSimpleName();
    }

    private Main() {}
}
