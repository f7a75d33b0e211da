package rmqctl.servers;

import java.io.File;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Properties;
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
 * A real name server and a real broker on loopback, until standard input ends.
 *   Serve HOME STORE PROPERTIES
 * HOME is a folder for what they keep beside the store; PROPERTIES is a file as a broker.conf. When both are ready one
 * line is printed: their addresses.
 */
public final class Serve {
    private static final int BELOW_BROKER = 2;

    public static void main(String[] args) {
        try {
            run(args[0], args[1], args[2]);
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String home, String store, String file) throws Exception {
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
        NamesrvConfig nameConfig = new NamesrvConfig();
        nameConfig.setRocketmqHome(home);
        nameConfig.setKvConfigPath(home + File.separator + "kvConfig.json");
        nameConfig.setConfigStorePath(home + File.separator + "namesrv.properties");
        NettyServerConfig nameSocket = new NettyServerConfig();
        nameSocket.setListenPort(freePort(0));
        NamesrvController names = new NamesrvController(nameConfig, nameSocket);
        if (!names.initialize()) {
            throw new IllegalStateException("the name server does not initialize");
        }
        names.start();
        String namesAt = "127.0.0.1:" + nameSocket.getListenPort();

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
        for (Object config : new Object[] {brokerConfig, storeConfig, brokerSocket, client}) {
            MixAll.properties2Object(properties, config);
        }
        int port = freePort(BELOW_BROKER);
        brokerConfig.setRocketmqHome(home);
        brokerConfig.setBrokerIP1("127.0.0.1");
        brokerConfig.setBrokerIP2("127.0.0.1");
        brokerConfig.setNamesrvAddr(namesAt);
        brokerSocket.setListenPort(port);
        storeConfig.setStorePathRootDir(store);
        storeConfig.setStorePathCommitLog(store + File.separator + "commitlog");
        storeConfig.setHaListenPort(freePort(0));
        setListenPort(brokerConfig, port);
        BrokerController broker = new BrokerController(brokerConfig, brokerSocket, client, storeConfig);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not initialize");
        }
        broker.start();
        broker.registerBrokerAll(true, false, true);
        System.out.println(namesAt + "\t127.0.0.1:" + port);
        System.out.flush();
        while (System.in.read() >= 0) {
            // until whoever started it is done
        }
        broker.shutdown();
        names.shutdown();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** 5.x has the port twice. */
    private static void setListenPort(BrokerConfig config, int port) {
        Properties properties = new Properties();
        properties.setProperty("listenPort", String.valueOf(port));
        MixAll.properties2Object(properties, config);
    }

    /** A port that nobody has, nor the one so far below it, where a broker listens too. */
    private static int freePort(int below) throws Exception {
        while (true) {
            try (ServerSocket one = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
                if (below == 0) {
                    return one.getLocalPort();
                }
                try (ServerSocket other = new ServerSocket(one.getLocalPort() - below)) {
                    return one.getLocalPort();
                } catch (java.io.IOException taken) {
                    continue;
                }
            }
        }
    }
}
