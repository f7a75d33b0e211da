package rmqctl.servers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A whole broker over the store DIR, configured by the properties file CONF: says where its log ends when it is up, and
 * again for each line of standard input; ends cleanly with `stop`, and dies with its input.
 */
public final class Broker {
    private Broker() {
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Paths.get(arguments[1]), StandardCharsets.UTF_8)) {
            properties.load(reader);
        }
        BrokerConfig broker = new BrokerConfig();
        broker.setRocketmqHome(arguments[0] + "-java");
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(arguments[0]);
        store.setStorePathCommitLog(arguments[0] + "/commitlog");
        store.setFileReservedTime(1_000_000);
        store.setCleanFileForciblyEnable(false);
        NettyServerConfig server = new NettyServerConfig();
        MixAll.properties2Object(properties, broker);
        MixAll.properties2Object(properties, store);
        MixAll.properties2Object(properties, server);
        BrokerController controller = new BrokerController(broker, server, new NettyClientConfig(), store);
        if (!controller.initialize()) {
            throw new IllegalStateException("the broker does not initialize");
        }
        controller.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = ""; line != null; line = lines.readLine()) {
            if (line.equals("stop")) {
                controller.shutdown();
            }
            System.out.println("at " + controller.getMessageStore().getMaxPhyOffset());
            System.out.flush();
            if (line.equals("stop")) {
                System.exit(0);
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
