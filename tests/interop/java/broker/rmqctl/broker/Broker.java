package rmqctl.broker;

import java.io.FileInputStream;
import java.io.InputStream;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A whole broker over a store, with a name server of its own, on loopback, until its standard input ends. */
public final class Broker {
    /** DIR PROPS NAMESRV_PORT PORT: properties store.* and broker.*; says `ready` when clients may come. */
    public static void main(String[] args) {
        int status = 1;
        try {
            run(args);
            status = 0;
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        // the threads of a broker that failed half-way would keep the process alive
        Runtime.getRuntime().halt(status);
    }

    private static void run(String[] args) throws Exception {
        // as BrokerStartup does it: a name server takes the topics of no broker without a version
        System.setProperty("rocketmq.remoting.version", Integer.toString(MQVersion.CURRENT_VERSION));
        String dir = args[0];
        int namesrvPort = Integer.parseInt(args[2]);
        int port = Integer.parseInt(args[3]);
        NamesrvConfig names = new NamesrvConfig();
        names.setRocketmqHome(dir + "-namesrv");
        names.setKvConfigPath(dir + "-namesrv/kv.json");
        NettyServerConfig namesListen = new NettyServerConfig();
        namesListen.setListenPort(namesrvPort);
        NamesrvController namesrv = new NamesrvController(names, namesListen);
        if (!namesrv.initialize()) {
            throw new IllegalStateException("the name server did not initialize");
        }
        namesrv.start();
        Properties given = new Properties();
        try (InputStream in = new FileInputStream(args[1])) {
            given.load(in);
        }
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName("broker-a");
        config.setBrokerClusterName("DefaultCluster");
        config.setBrokerIP1("127.0.0.1");
        config.setNamesrvAddr("127.0.0.1:" + namesrvPort);
        config.setRocketmqHome(dir + "-namesrv");
        given.setProperty("broker.listenPort", args[3]);
        MixAll.properties2Object(of(given, "broker."), config);
        MessageStoreConfig store = new MessageStoreConfig();
        MixAll.properties2Object(of(given, "store."), store);
        store.setStorePathRootDir(dir);
        store.setStorePathCommitLog(dir + "/commitlog");
        store.setHaListenPort(port + 1);
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(port);
        BrokerController broker = new BrokerController(config, listen, new NettyClientConfig(), store);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker did not initialize");
        }
        broker.start();
        System.out.println("ready");
        System.out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
        broker.shutdown();
        // the name server keeps nothing
        System.out.println("ended");
        System.out.flush();
    }

    private static Properties of(Properties given, String prefix) {
        Properties found = new Properties();
        for (String name : given.stringPropertyNames()) {
            if (name.startsWith(prefix)) {
                found.setProperty(name.substring(prefix.length()), given.getProperty(name));
            }
        }
        return found;
    }
}
