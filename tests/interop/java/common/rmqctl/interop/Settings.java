package rmqctl.interop;

import java.io.File;
import java.io.IOException;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * One store and how to open it: the folder and a properties file in UTF-8.
 * store.* and broker.* are RocketMQ's own settings (@DIR@ in them is the folder), topic.NAME=queues[;attribute=value]*
 * (5.x only), query.N.topic and query.N.key are keys to look up, write.* tells Writer what to write.
 */
final class Settings {
    final String directory;
    final Properties properties = new Properties();

    Settings(String directory, String file) throws IOException {
        this.directory = directory;
        try (Reader reader = Files.newBufferedReader(Paths.get(file), StandardCharsets.UTF_8)) {
            properties.load(reader);
        }
    }

    String text(String key, String otherwise) {
        return properties.getProperty(key, otherwise);
    }

    int number(String key, int otherwise) {
        return Integer.parseInt(text(key, String.valueOf(otherwise)));
    }

    boolean flag(String key) {
        return Boolean.parseBoolean(text(key, "false"));
    }

    /** Whether the store is left as a killed broker leaves it. */
    boolean halts() {
        return text("write.end", "shutdown").equals("halt");
    }

    /** The properties below a prefix, without it. */
    Properties below(String prefix) {
        Properties found = new Properties();
        for (String key : properties.stringPropertyNames()) {
            if (key.startsWith(prefix)) {
                found.setProperty(key.substring(prefix.length()), text(key, "").replace("@DIR@", directory));
            }
        }
        return found;
    }

    MessageStoreConfig store() {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory);
        config.setStorePathCommitLog(directory + File.separator + "commitlog");
        config.setHaListenPort(0);
        // A test's store may be old, and its disk full: nothing is to be cleaned away for that.
        config.setFileReservedTime(1_000_000);
        config.setCleanFileForciblyEnable(false);
        MixAll.properties2Object(below("store."), config);
        return config;
    }

    BrokerConfig broker() {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName("interop");
        MixAll.properties2Object(below("broker."), config);
        return config;
    }
}
