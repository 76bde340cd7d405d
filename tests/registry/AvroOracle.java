import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaCompatibility.Incompatibility;

/**
 * Compares schemas with Apache Avro. Each line of standard input has a reader's and a writer's schema, separated by a tab. For
 * each schema, a line has its text, or "!" and an error; a third line has the incompatibilities as type, location and message.
 */
public class AvroOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = lines.readLine()) != null) {
            String[] texts = line.split("\t");
            Schema reader = parse(texts[0], out);
            Schema writer = parse(texts[1], out);
            out.println(reader == null || writer == null ? "" : compare(reader, writer));
        }
        out.flush();
    }

    private static Schema parse(String text, PrintStream out) {
        try {
            Schema.Parser parser = new Schema.Parser(NameValidator.STRICT_VALIDATOR);
            parser.setValidateDefaults(true);
            Schema schema = parser.parse(text);
            out.println(schema.toString(new ArrayList<Schema>(), false));
            return schema;
        } catch (Exception error) {
            out.println("!" + error.getMessage());
            return null;
        }
    }

    private static String compare(Schema reader, Schema writer) {
        try {
            List<String> found = new ArrayList<>();
            for (Incompatibility difference : SchemaCompatibility.checkReaderWriterCompatibility(reader, writer)
                    .getResult().getIncompatibilities()) {
                found.add(difference.getType() + " " + difference.getLocation() + " " + difference.getMessage());
            }
            return String.join("\t", found);
        } catch (Exception error) {
            return "!" + error.getMessage();
        }
    }
}
