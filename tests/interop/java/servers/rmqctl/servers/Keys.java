package rmqctl.servers;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.Properties;
import java.util.TreeSet;

/**
 * The keys that a broker and a name server have, started by RocketMQ's own start-up classes with a configuration file.
 *   Keys HOME BROKER_CONF NAMESRV_CONF
 * Prints `broker KEY=VALUE` and `namesrv KEY=VALUE` lines. Nothing listens: they are made and not started.
 */
public final class Keys {
    private Keys() {
    }

    public static void main(String[] args) {
        PrintStream out = System.out;
        System.setOut(new PrintStream(new ByteArrayOutputStream()));
        System.setProperty("user.home", args[0]);
        System.setProperty("rocketmq.home.dir", args[0]);
        try {
            Class<?> brokers = Class.forName("org.apache.rocketmq.broker.BrokerStartup");
            Object broker = brokers.getMethod("createBrokerController", String[].class)
                .invoke(null, (Object) new String[] {"-c", args[1]});
            print(out, "broker", broker);
            print(out, "namesrv", nameServer(new String[] {"-c", args[2]}));
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** Before 5.0 one method reads the file and makes the server. */
    private static Object nameServer(String[] options) throws Exception {
        Class<?> names = Class.forName("org.apache.rocketmq.namesrv.NamesrvStartup");
        for (Method method : names.getMethods()) {
            if (method.getName().equals("createNamesrvController") && method.getParameterCount() == 1) {
                return method.invoke(null, (Object) options);
            }
        }
        names.getMethod("parseCommandlineAndConfigFile", String[].class).invoke(null, (Object) options);
        return names.getMethod("createNamesrvController").invoke(null);
    }

    private static void print(PrintStream out, String server, Object controller) throws Exception {
        Object configuration = controller.getClass().getMethod("getConfiguration").invoke(controller);
        Properties all = (Properties) configuration.getClass().getMethod("getAllConfigs").invoke(configuration);
        for (String key : new TreeSet<>(all.stringPropertyNames())) {
            out.println(server + " " + key + "=" + all.getProperty(key));
        }
    }
}
