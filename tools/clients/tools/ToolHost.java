import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after another in one process, because most of a tool's time is the start of its JVM.
 * A request is a line with the class and its arguments in Base64. The response is a line with the exit code, standard output
 * and standard error in Base64. It runs from source with the jars of the tools.
 */
public final class ToolHost {
    private static final class Exited extends RuntimeException {
        final int code;

        Exited(int code) {
            super("exit code " + code, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> {
            throw new Exited(code);
        });
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = Arrays.stream(line.split(" ", -1)).map(ToolHost::decoded).toArray(String[]::new);
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            int code;
            try (PrintStream out = stream(output); PrintStream err = stream(errors)) {
                System.setOut(out);
                System.setErr(err);
                code = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            }
            answers.println(code + " " + encoded(output) + " " + encoded(errors));
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // also ends threads that a tool has left running
    }

    private static int run(String name, String[] arguments) throws Exception {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Exited) return ((Exited) thrown.getCause()).code;
            thrown.getCause().printStackTrace();
            return 1;
        }
    }

    private static PrintStream stream(ByteArrayOutputStream bytes) {
        return new PrintStream(bytes, true, StandardCharsets.UTF_8);
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
