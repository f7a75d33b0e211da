package rmqctl.servers;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A real broker on loopback, and a name server for it unless the broker.conf names one.
 *   Serve HOME STORE PROPERTIES
 * HOME is a folder for what they keep beside the store; PROPERTIES is a file as a broker.conf, whose ports count; any
 * free ones where it has none. When they are ready two lines are printed: the addresses of name server and broker, and
 * `at OFFSET`, where the log ends. The second is printed again for each line of standard input; with the line `stop`
 * they shut down before, without it they die with their input, as killed ones.
 */
public final class Serve {
    static final int BELOW_BROKER = 2;

    private Serve() {
    }

    public static void main(String[] args) {
        try {
            run(args[0], args[1], args[2]);
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    /** Gives this process a home, and returns the properties in a file. */
    static Properties prepared(String home, String file) throws IOException {
        // a name server puts what it keeps there, and has no folder made for it
        Files.createDirectories(Paths.get(home));
        System.setProperty("user.home", home);
        System.setProperty("rocketmq.home.dir", home);
        // as BrokerStartup does: without it name servers take the broker for an ancient one, and no topics of it
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, String.valueOf(MQVersion.CURRENT_VERSION));
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(Paths.get(file))) {
            properties.load(in);
        }
        return properties;
    }

    private static void run(String home, String store, String file) throws Exception {
        Properties properties = prepared(home, file);
        String namesAt = properties.getProperty("namesrvAddr");
        NamesrvController names = null;
        if (namesAt == null) {
            NettyServerConfig nameSocket = new NettyServerConfig();
            nameSocket.setListenPort(freePort(0));
            names = nameServer(home, nameSocket);
            namesAt = "127.0.0.1:" + nameSocket.getListenPort();
        }
        BrokerConfig brokerConfig = new BrokerConfig();
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        NettyServerConfig brokerSocket = new NettyServerConfig();
        NettyClientConfig client = new NettyClientConfig();
        brokerConfig.setBrokerName("broker-a");
        brokerConfig.setBrokerClusterName("DefaultCluster");
        // a test's disk may be full, and its store old
        storeConfig.setFileReservedTime(1_000_000);
        storeConfig.setCleanFileForciblyEnable(false);
        storeConfig.setDiskMaxUsedSpaceRatio(95);
        storeConfig.setHaListenPort(freePort(0));
        brokerSocket.setListenPort(freePort(BELOW_BROKER));
        for (Object config : new Object[] {brokerConfig, storeConfig, brokerSocket, client}) {
            MixAll.properties2Object(properties, config);
        }
        int port = brokerSocket.getListenPort();
        brokerConfig.setRocketmqHome(home);
        brokerConfig.setBrokerIP1("127.0.0.1");
        brokerConfig.setBrokerIP2("127.0.0.1");
        brokerConfig.setNamesrvAddr(namesAt);
        storeConfig.setStorePathRootDir(store);
        storeConfig.setStorePathCommitLog(store + File.separator + "commitlog");
        setListenPort(brokerConfig, port);
        BrokerController broker = new BrokerController(brokerConfig, brokerSocket, client, storeConfig);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not initialize");
        }
        broker.start();
        broker.registerBrokerAll(true, false, true);
        System.out.println(namesAt + "\t127.0.0.1:" + port);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        String line = "";
        while (line != null) {
            boolean isEnd = line.equals("stop");
            if (isEnd) {
                broker.shutdown();
            }
            System.out.println("at " + broker.getMessageStore().getMaxPhyOffset());
            System.out.flush();
            if (isEnd) {
                if (names != null) {
                    names.shutdown();
                }
                break;
            }
            line = lines.readLine();
        }
        Runtime.getRuntime().halt(0);
    }

    static NamesrvController nameServer(String home, NettyServerConfig socket) throws Exception {
        NamesrvConfig config = new NamesrvConfig();
        config.setRocketmqHome(home);
        config.setKvConfigPath(home + File.separator + "kvConfig.json");
        config.setConfigStorePath(home + File.separator + "namesrv.properties");
        NamesrvController names = new NamesrvController(config, socket);
        if (!names.initialize()) {
            throw new IllegalStateException("the name server does not initialize");
        }
        names.start();
        return names;
    }

    /** 5.x has the port twice. */
    private static void setListenPort(BrokerConfig config, int port) {
        Properties properties = new Properties();
        properties.setProperty("listenPort", String.valueOf(port));
        MixAll.properties2Object(properties, config);
    }

    /** A port that nobody has, nor the one so far below it, where a broker listens too; below those that the system
     * gives to connections, one of which could take it before the broker does. */
    static int freePort(int below) throws Exception {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(10_000, 32_000);
            try (ServerSocket one = new ServerSocket(port);
                    ServerSocket other = new ServerSocket(below == 0 ? 0 : port - below)) {
                return port;
            } catch (java.io.IOException taken) {
                continue;
            }
        }
    }
}
