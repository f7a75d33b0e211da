import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/**
 * HDFS in one process: a name node and a data node, with WebHDFS. Arguments: a folder for their data, then pairs of a
 * local folder and the path that it is copied to. Prints "PORTS webhdfs its-own" and runs until standard input ends.
 */
public final class Hdfs {
    private Hdfs() {
    }

    public static void main(String[] arguments) throws Exception {
        File data = new File(arguments[0]).getAbsoluteFile();
        Configuration configuration = new Configuration();
        configuration.set("fs.defaultFS", "hdfs://127.0.0.1:0");
        configuration.set("dfs.namenode.http-address", "127.0.0.1:0");
        configuration.set("dfs.namenode.name.dir", new File(data, "name").toURI().toString());
        configuration.set("dfs.datanode.data.dir", new File(data, "data").toURI().toString());
        for (String address : new String[] {"address", "http.address", "ipc.address"}) {
            configuration.set("dfs.datanode." + address, "127.0.0.1:0");
        }
        configuration.set("dfs.datanode.hostname", "127.0.0.1");
        configuration.set("dfs.permissions.enabled", "false");
        configuration.set("dfs.replication", "1");
        // both in one process
        DefaultMetricsSystem.setMiniClusterMode(true);
        NameNode.format(configuration);
        NameNode names = new NameNode(configuration);
        configuration.set("fs.defaultFS", "hdfs://127.0.0.1:" + names.getNameNodeAddress().getPort());
        DataNode node = DataNode.createDataNode(new String[0], configuration);
        while (!node.isDatanodeFullyStarted()) {
            Thread.sleep(50);
        }
        try (FileSystem files = FileSystem.get(configuration)) {
            for (int at = 1; at + 1 < arguments.length; at += 2) {
                files.copyFromLocalFile(new Path(arguments[at]), new Path(arguments[at + 1]));
            }
        }
        System.out.println("PORTS " + names.getHttpAddress().getPort() + " " + names.getNameNodeAddress().getPort());
        System.out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
        // the threads of both would go on
        System.exit(0);
    }
}
