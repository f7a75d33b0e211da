package rmqctl.clients;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.Permission;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * Runs every command line of a file by mqadmin, in one process.
 *   Sweep FILE
 * Prints `name NAME` for each command that there is; then, for each line of the file, `== LINE` with what was printed
 * (`out TEXT`) and what was thrown (`err TEXT`, without the places). Words are divided by spaces.
 */
public final class Sweep {
    private static final int LIMIT_MS = 60_000;

    private Sweep() {
    }

    /** Has a command whose words are wrong end alone; mqadmin ends the process with them. */
    @SuppressWarnings("removal")
    private static final class Staying extends SecurityManager {
        @Override
        public void checkPermission(Permission permission) {
        }

        @Override
        public void checkExit(int status) {
            throw new SecurityException("exit " + status);
        }
    }

    /** All commands, in a field that has another name in 4.x; each start adds them once more. */
    @SuppressWarnings("unchecked")
    private static List<SubCommand> commands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                return (List<SubCommand>) field.get(null);
            }
        }
        throw new IllegalStateException("mqadmin has no list of commands");
    }

    @SuppressWarnings("removal")
    public static void main(String[] args) throws Exception {
        PrintStream own = System.out;
        PrintStream ownErrors = System.err;
        System.setSecurityManager(new Staying());
        MQAdminStartup.initCommand();
        for (SubCommand one : commands()) {
            own.println("name " + one.commandName());
        }
        for (String line : Files.readAllLines(Paths.get(args[0]))) {
            commands().clear();
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            Thread one = new Thread(() -> MQAdminStartup.main0(line.split(" "), null));
            one.setDaemon(true);
            one.start();
            one.join(LIMIT_MS);
            System.setOut(own);
            System.setErr(ownErrors);
            own.println("== " + line);
            print(own, "out ", out);
            print(own, "err ", err);
            if (one.isAlive()) {
                own.println("err it did not end");
            }
        }
        own.flush();
        System.setSecurityManager(null);
        Runtime.getRuntime().halt(0);
    }

    private static void print(PrintStream own, String before, ByteArrayOutputStream text) {
        for (String line : new String(text.toByteArray(), StandardCharsets.UTF_8).split("\r?\n|\r")) {
            if (!line.trim().isEmpty() && !line.startsWith("\tat ") && !line.startsWith("\t... ")) {
                own.println(before + line);
            }
        }
    }
}
