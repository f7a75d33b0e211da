package rmqctl.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * A store that lives as long as its standard input and does what each line of that says, answering with a line:
 *   put KIND N         write so many messages, as Writer does
 *   follow HOST:PORT   be the slave of this master (brokerRole=SLAVE)
 *   end                nothing
 *   stop               shut down
 * The answer is the physical offset behind the last message. Without `stop` the JVM dies with its input, as a killed one.
 */
final class Replica {
    private Replica() {
    }

    static void run(Settings settings) throws Exception {
        DefaultMessageStore store = Version.create(settings);
        if (!store.load()) {
            throw new IllegalStateException("load failed: " + settings.directory);
        }
        store.start();
        Writer writer = new Writer(store);
        int written = 0;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        say(store);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("put")) {
                for (int i = 0; i < Integer.parseInt(words[2]); i++) {
                    writer.one(words[1], written++);
                }
            } else if (words[0].equals("follow")) {
                store.updateHaMasterAddress(words[1]);
            } else if (words[0].equals("stop")) {
                store.shutdown();
                say(store);
                return;
            }
            say(store);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void say(DefaultMessageStore store) {
        System.out.println("at " + store.getMaxPhyOffset());
        System.out.flush();
    }
}
