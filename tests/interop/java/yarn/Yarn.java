import java.io.File;
import java.io.FileWriter;
import java.io.Writer;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.ResourceManager;

/**
 * YARN in one process: a resource manager and a node manager. Argument: a folder for their data, into which the
 * configuration of clients is written as yarn-site.xml and core-site.xml. Prints "READY" and runs until standard input
 * ends.
 */
public final class Yarn {
    private Yarn() {
    }

    public static void main(String[] arguments) throws Exception {
        File data = new File(arguments[0]).getAbsoluteFile();
        YarnConfiguration configuration = new YarnConfiguration();
        configuration.set("fs.defaultFS", "file:///");
        String manager = YarnConfiguration.RM_PREFIX;
        for (String name : new String[] {"address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address"}) {
            configuration.set(manager + name, "127.0.0.1:" + freePort());
        }
        configuration.set("yarn.resourcemanager.hostname", "127.0.0.1");
        for (String name : new String[] {"address", "localizer.address", "webapp.address"}) {
            configuration.set(YarnConfiguration.NM_PREFIX + name, "127.0.0.1:" + freePort());
        }
        configuration.set("yarn.nodemanager.collector-service.address", "127.0.0.1:" + freePort());
        configuration.set("yarn.nodemanager.local-dirs", new File(data, "local").toString());
        configuration.set("yarn.nodemanager.log-dirs", new File(data, "logs").toString());
        // memory of a busy machine says nothing of what is tested
        configuration.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        configuration.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        configuration.setInt("yarn.nodemanager.resource.memory-mb", 4096);
        configuration.setInt("yarn.nodemanager.resource.cpu-vcores", 4);
        configuration.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        configuration.setFloat("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", 100f);
        configuration.set("yarn.scheduler.capacity.root.queues", "default");
        configuration.set("yarn.scheduler.capacity.root.default.capacity", "100");
        configuration.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.8");
        DefaultMetricsSystem.setMiniClusterMode(true);
        ResourceManager resources = new ResourceManager();
        resources.init(configuration);
        resources.start();
        NodeManager node = new NodeManager();
        node.init(configuration);
        node.start();
        while (resources.getResourceScheduler().getNumClusterNodes() == 0) {
            Thread.sleep(50);
        }
        for (String name : new String[] {"yarn-site.xml", "core-site.xml"}) {
            try (Writer file = new FileWriter(new File(data, name))) {
                configuration.writeXml(file);
            }
        }
        System.out.println("READY");
        System.out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
        System.exit(0);
    }

    private static int freePort() throws Exception {
        try (java.net.ServerSocket socket = new java.net.ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }
}
