package rmqctl.servers;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Evaluates SQL92 filters. A line of FILE: an expression and the names and values of properties, each in base 64 behind a dot, with
 * blanks between them. Prints a line for each: "invalid", what the expression evaluates to, or "error".
 */
public final class Filters {
    private Filters() {
    }

    public static void main(String[] arguments) throws Exception {
        StringBuilder said = new StringBuilder();
        for (String line : Files.readAllLines(Paths.get(arguments[0]))) {
            String[] parts = line.split(" ");
            Map<String, String> properties = new HashMap<>();
            for (int i = 1; i + 1 < parts.length; i += 2) {
                properties.put(text(parts[i]), text(parts[i + 1]));
            }
            said.append(judged(text(parts[0]), properties)).append('\n');
        }
        System.out.print(said);
        System.out.flush();
        System.exit(0);
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded.substring(1)), StandardCharsets.UTF_8);
    }

    private static String judged(String text, Map<String, String> properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable problem) {
            return "invalid";
        }
        try {
            return String.valueOf(expression.evaluate(new MessageEvaluationContext(properties)));
        } catch (Throwable problem) {
            return "error";
        }
    }
}
