package rmqctl.clients;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs commands of mqadmin in one process: each argument is a command line, words divided by spaces. */
public final class Admin {
    public static void main(String[] args) {
        for (String line : args) {
            System.out.println("\n== " + line);
            MQAdminStartup.main0(line.split(" "), null);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
