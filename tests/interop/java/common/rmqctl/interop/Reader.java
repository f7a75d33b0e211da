package rmqctl.interop;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;

/**
 * Opens a store as a broker would, writes what Settings may ask for, reads all that a consumer and an administrator
 * could, and shuts it down, or leaves it to the JVM's end.
 */
final class Reader {
    private static final int MOST_ANOMALIES = 1000;

    private final DefaultMessageStore store;
    private final Settings settings;
    private final List<Object> lines = new ArrayList<>();

    private Reader(DefaultMessageStore store, Settings settings) {
        this.store = store;
        this.settings = settings;
    }

    /** The summary, what was written, queues, each followed by its messages, then the answers to key queries. */
    static List<Object> view(Settings settings) {
        Map<String, Object> summary = new LinkedHashMap<>();
        List<Object> lines = new ArrayList<>();
        lines.add(summary);
        summary.put("kind", "summary");
        summary.put("version", MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION));
        summary.put("load", null);
        try {
            DefaultMessageStore store;
            // StoreStatsService fills a static TreeMap in its constructor: two at once break it
            synchronized (Reader.class) {
                store = Version.create(settings);
            }
            long start = System.nanoTime();
            boolean loaded = store.load();
            summary.put("loadMilliseconds", (System.nanoTime() - start) / 1_000_000);
            summary.put("load", loaded);
            if (loaded) {
                store.start();
                if (settings.text("write.kinds", null) != null) {
                    lines.addAll(new Writer(store).all(settings));
                }
                // a member of a DLedger group commits what it holds once it leads
                long settled = System.nanoTime() + 20_000_000_000L;
                while (store.getMaxPhyOffset() < settings.number("harness.endOffset", 0)
                        && System.nanoTime() < settled) {
                    Thread.sleep(10);
                }
                summary.put("drained", Main.drain(store, settings.number("harness.drainSeconds", 20)));
                summary.put("minPhysicalOffset", store.getMinPhyOffset());
                summary.put("maxPhysicalOffset", store.getMaxPhyOffset());
                Reader reader = new Reader(store, settings);
                reader.queues();
                reader.queries();
                lines.addAll(reader.lines);
                if (!settings.halts()) {
                    store.shutdown();
                }
            } else if (settings.flag("harness.shutdownAfterFailedLoad")) {
                store.shutdown();
            }
        } catch (Throwable problem) {
            summary.put("exception", trace(problem));
        }
        return lines;
    }

    private void queues() throws Exception {
        for (Map.Entry<String, List<Integer>> entry : Version.queues(store).entrySet()) {
            for (int queueId : entry.getValue()) {
                queue(entry.getKey(), queueId);
            }
        }
    }

    private void queue(String topic, int queueId) throws Exception {
        long min = store.getMinOffsetInQueue(topic, queueId);
        long max = Version.maxOffset(store, topic, queueId);
        List<Object> anomalies = new ArrayList<>();
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "queue");
        line.put("topic", topic);
        line.put("queueId", queueId);
        line.put("min", min);
        line.put("max", max);
        line.put("units", Version.units(store, topic, queueId, min, max));
        line.put("anomalies", anomalies);
        lines.add(line);
        long next = min;
        while (next < max && anomalies.size() < MOST_ANOMALIES) {
            next = Math.max(next + 1, get(topic, queueId, next, anomalies));
        }
    }

    /** Gets one message, returns the offset to ask for next. What a consumer would stumble over becomes an anomaly. */
    private long get(String topic, int queueId, long offset, List<Object> anomalies) throws Exception {
        GetMessageResult result;
        try {
            result = store.getMessage("interop", topic, queueId, offset, 1, null);
        } catch (IllegalArgumentException | IndexOutOfBoundsException problem) {
            // a unit with a size that is none: a broker answers its consumer with a system error
            anomalies.add(Arrays.asList(offset, problem.getClass().getSimpleName(), offset));
            return offset;
        }
        if (result == null) {
            anomalies.add(Arrays.asList(offset, "NULL", offset));
            return offset;
        }
        try {
            if (result.getStatus() != GetMessageStatus.FOUND) {
                anomalies.add(Arrays.asList(offset, result.getStatus().name(), result.getNextBeginOffset()));
            }
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                Map<String, Object> line = message(buffer);
                if (line == null) {
                    anomalies.add(Arrays.asList(offset, "UNDECODABLE", result.getNextBeginOffset()));
                } else {
                    line.put("askedTopic", topic);
                    line.put("askedQueueId", queueId);
                    line.put("askedOffset", offset);
                    line.put("nextOffset", result.getNextBeginOffset());
                    lines.add(line);
                }
            }
            return result.getNextBeginOffset();
        } finally {
            result.release();
        }
    }

    private static Map<String, Object> message(ByteBuffer buffer) throws Exception {
        MessageExt message;
        try {
            message = MessageDecoder.decode(buffer.duplicate(), true, true);
        } catch (OutOfMemoryError problem) {
            // it believes any length
            message = null;
        }
        if (message == null) {
            return null;
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "message");
        line.put("topic", message.getTopic());
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("physicalOffset", message.getCommitLogOffset());
        line.put("size", buffer.remaining());
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        line.put("bodyLength", body.length);
        line.put("bodySha256", sha256(body));
        line.put("keys", message.getKeys());
        line.put("tags", message.getTags());
        line.put("properties", new TreeMap<>(message.getProperties()));
        line.put("storeTimestamp", message.getStoreTimestamp());
        line.put("bornTimestamp", message.getBornTimestamp());
        line.put("bornHost", host(message.getBornHost()));
        line.put("storeHost", host(message.getStoreHost()));
        line.put("sysFlag", message.getSysFlag());
        line.put("flag", message.getFlag());
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        line.put("messageId", message.getMsgId());
        return line;
    }

    private void queries() {
        for (int i = 0; settings.text("query." + i + ".topic", null) != null; i++) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("kind", "query");
            line.put("topic", settings.text("query." + i + ".topic", ""));
            line.put("key", settings.text("query." + i + ".key", ""));
            List<Long> offsets = new ArrayList<>();
            QueryMessageResult result = store.queryMessage((String) line.get("topic"), (String) line.get("key"),
                settings.number("harness.queryMost", 64), 0, Long.MAX_VALUE);
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                offsets.add(buffer.getLong(buffer.position() + 28));
            }
            result.release();
            line.put("physicalOffsets", offsets);
            lines.add(line);
        }
    }

    static String sha256(byte[] bytes) throws Exception {
        StringBuilder text = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-256").digest(bytes)) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }

    private static List<Object> host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return Arrays.asList(host.getAddress().getHostAddress(), host.getPort());
    }

    private static String trace(Throwable problem) {
        StringWriter text = new StringWriter();
        problem.printStackTrace(new PrintWriter(text));
        return text.toString();
    }
}
