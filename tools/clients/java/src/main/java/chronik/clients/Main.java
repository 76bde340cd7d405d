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
 * Reads commands from standard input, one JSON object per line, and answers each on standard output; many commands to one
 * process, because a virtual machine takes long to start. What commands and answers look like stands in the tests'
 * {@code drivers/wire.py}.
 */
public final class Main {
    /** A command: its arguments in, its result out (null is a result too). */
    interface Command {
        Object run(JsonNode arguments) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever a library prints must not look like an answer
        Map<String, Command> commands = new TreeMap<>();
        Records.register(commands);
        Members.register(commands);
        Administration.register(commands);
        Transactions.register(commands);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(Wire.JSON.writeValueAsString(answer(commands, Wire.JSON.readTree(line))));
        }
        System.exit(0); // members that were not told to leave must not keep the process
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
        } catch (Exception failure) { // the driver outlives a command that fails: the test is told and decides
            Throwable cause = rootOf(failure);
            answer.putObject("error").put("name", nameOf(cause)).put("message", String.valueOf(cause.getMessage()));
        }
        return answer;
    }

    /** A producer that was refused something tells so at each later call, with the refusal as the cause. */
    private static Throwable rootOf(Throwable failure) {
        boolean wrapped = failure instanceof ExecutionException
                || failure instanceof CompletionException
                || failure.getClass() == KafkaException.class;
        return wrapped && failure.getCause() != null ? rootOf(failure.getCause()) : failure;
    }

    /** Kafka's own name for what the broker answered, or the class of anything else. */
    private static String nameOf(Throwable cause) {
        return cause instanceof ApiException ? Errors.forException(cause).name() : cause.getClass().getSimpleName();
    }

    private Main() {}
}
