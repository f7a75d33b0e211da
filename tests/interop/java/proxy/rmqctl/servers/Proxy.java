package rmqctl.servers;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Properties;
import org.apache.rocketmq.proxy.ProxyStartup;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/**
 * RocketMQ's proxy in local mode on loopback, with a broker in it and a name server beside it.
 *   Proxy HOME STORE PROPERTIES
 * As Serve; settings that begin with `proxy.` are the proxy's. When they are ready one line is printed: the addresses of name
 * server, broker and proxy. They die with their input, as killed ones; with the line `stop` as by a signal.
 */
public final class Proxy {
    private static final String OF_PROXY = "proxy.";

    private Proxy() {
    }

    public static void main(String[] args) {
        try {
            run(args[0], args[1], args[2]);
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String home, String store, String file) throws Exception {
        Properties given = Serve.prepared(home, file);
        System.setProperty("RMQ_PROXY_HOME", home);
        NettyServerConfig nameSocket = new NettyServerConfig();
        nameSocket.setListenPort(Serve.freePort(0));
        Serve.nameServer(home, nameSocket);
        String namesAt = "127.0.0.1:" + nameSocket.getListenPort();
        int port = Serve.freePort(Serve.BELOW_BROKER);
        int grpcPort = Serve.freePort(0);
        StringBuilder broker = new StringBuilder();
        StringBuilder proxy = new StringBuilder("{\"proxyMode\":\"LOCAL\",\"rocketMQClusterName\":\"DefaultCluster\"");
        proxy.append(",\"proxyClusterName\":\"DefaultCluster\",\"localServeAddr\":\"127.0.0.1\"");
        proxy.append(",\"grpcServerPort\":" + grpcPort + ",\"remotingListenPort\":" + Serve.freePort(0));
        for (String name : given.stringPropertyNames()) {
            if (name.startsWith(OF_PROXY)) {
                proxy.append(",\"" + name.substring(OF_PROXY.length()) + "\":\"" + given.getProperty(name) + "\"");
            } else {
                broker.append(name + "=" + given.getProperty(name) + "\n");
            }
        }
        broker.append("brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\n");
        broker.append("fileReservedTime=1000000\ncleanFileForciblyEnable=false\ndiskMaxUsedSpaceRatio=95\n");
        broker.append("listenPort=" + port + "\nhaListenPort=" + Serve.freePort(0) + "\n");
        broker.append("storePathRootDir=" + store + "\nstorePathCommitLog=" + store + "/commitlog\n");
        Path proxyFile = written(home, "proxy.json", proxy.append("}").toString());
        Path brokerFile = written(home, "broker.conf", broker.toString());
        ProxyStartup.main(new String[] {"-pm", "local", "-pc", proxyFile.toString(), "-bc", brokerFile.toString(), "-n", namesAt});
        System.out.println(namesAt + "\t127.0.0.1:" + port + "\t127.0.0.1:" + grpcPort);
        System.out.flush();
        int input = System.in.read();
        if (input == 's') {
            System.exit(0);
        }
        Runtime.getRuntime().halt(0);
    }

    private static Path written(String home, String name, String text) throws Exception {
        return Files.write(Paths.get(home, name), text.getBytes(StandardCharsets.UTF_8));
    }
}
