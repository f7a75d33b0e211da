package rmqctl.interop;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Writes messages into a store, new or existing: of each kind named in write.kinds, write.messages of them.
 * With write.end=halt the JVM then dies at once, after queues and index have caught up, and abort stays behind.
 */
final class Writer {
    private static final int MOST_IN_BATCH = 5;
    private static final int DELAY_LEVELS = 18;

    private final DefaultMessageStore store;
    private final List<Object> lines = new ArrayList<>();

    Writer(DefaultMessageStore store) {
        this.store = store;
    }

    static void run(Settings settings, Path out) throws Exception {
        DefaultMessageStore store = Version.create(settings);
        if (!store.load()) {
            throw new IllegalStateException("load failed: " + settings.directory);
        }
        store.start();
        Writer writer = new Writer(store);
        writer.all(settings);
        boolean drained = Main.drain(store, 20);
        Map<String, Object> summary = new LinkedHashMap<>();
        summary.put("kind", "summary");
        summary.put("drained", drained);
        summary.put("maxPhysicalOffset", store.getMaxPhyOffset());
        writer.lines.add(0, summary);
        if (settings.halts()) {
            Main.write(out, writer.lines);
            Runtime.getRuntime().halt(0);
        }
        store.shutdown();
        Main.write(out, writer.lines);
    }

    /** All that is asked for; a line for each put. */
    List<Object> all(Settings settings) throws Exception {
        int count = settings.number("write.messages", 20);
        for (String kind : settings.text("write.kinds", "plain").split(",")) {
            for (int i = 0; i < count; i++) {
                one(kind, i);
            }
        }
        return lines;
    }

    void one(String kind, int i) throws Exception {
        byte[] body = (kind + " message " + i + " \u00fc\u6d88\ud83d\ude80 ").repeat(1 + i % 7).getBytes(StandardCharsets.UTF_8);
        switch (kind) {
            case "plain":
                put(message("InteropPlain", i % 4, body, i));
                break;
            case "delay": {
                MessageExt message = message("InteropDelay", i % 2, body, i);
                Version.delay(message, 1 + i % DELAY_LEVELS);
                put(message);
                break;
            }
            case "transaction":
                transaction(i, body);
                break;
            case "compressed": {
                CompressionType type = CompressionType.values()[i % CompressionType.values().length];
                MessageExt message = message("InteropCompressed", 0, CompressorFactory.getCompressor(type).compress(body, 5), i);
                message.setSysFlag(MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag());
                put(message, body);
                break;
            }
            case "ipv6": {
                MessageExt message = message("InteropIpv6", i % 2, body, i);
                message.setBornHost(new InetSocketAddress(InetAddress.getByName("2001:db8::" + (i + 1)), 5000 + i));
                message.setBornHostV6Flag();
                if (i % 2 == 0) {
                    message.setStoreHost(new InetSocketAddress(InetAddress.getByName("fe80::1234"), 10911));
                    message.setStoreHostAddressV6Flag();
                }
                put(message);
                break;
            }
            case "batch":
                batch(i);
                break;
            case "light": {
                MessageExt message = message("InteropLight", 0, body, i);
                MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", i % 2 == 0 ? "%LMQ%a,%LMQ%a" : "%LMQ%a");
                put(message);
                break;
            }
            default:
                throw new IllegalArgumentException("write.kinds: " + kind);
        }
    }

    private MessageExt message(String topic, int queueId, byte[] body, int i) throws Exception {
        MessageExt message = Version.newMessage();
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress(InetAddress.getByAddress(new byte[] {10, 1, 2, (byte) i}), 1024 + i));
        message.setStoreHost(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 10911));
        if (i % 3 > 0) {
            message.setTags(i % 3 == 1 ? "TagA" : "\u6807\u7b7e");
        }
        if (i % 4 > 0) {
            message.setKeys(i % 4 == 1 ? "key" + i : "key" + i + " hot \u952e");
        }
        if (i % 5 > 0) {
            MessageClientIDSetter.setUniqID(message);
        }
        message.putUserProperty("n\u00e4me", "v\u00e4lue " + i);
        return message;
    }

    /** By turns committed, rolled back, left open; of the old style (sysFlag on the topic itself) every fourth. */
    private void transaction(int i, byte[] body) throws Exception {
        int[] types = {MessageSysFlag.TRANSACTION_COMMIT_TYPE, MessageSysFlag.TRANSACTION_ROLLBACK_TYPE,
            MessageSysFlag.TRANSACTION_PREPARED_TYPE};
        if (i % 4 == 3) {
            MessageExt message = message("InteropOldTransaction", 0, body, i);
            message.setSysFlag(types[i / 4 % 3]);
            put(message);
            return;
        }
        MessageExt half = message("RMQ_SYS_TRANS_HALF_TOPIC", 0, body, i);
        MessageAccessor.putProperty(half, MessageConst.PROPERTY_REAL_TOPIC, "InteropTransaction");
        MessageAccessor.putProperty(half, MessageConst.PROPERTY_REAL_QUEUE_ID, "0");
        MessageAccessor.putProperty(half, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
        MessageAccessor.putProperty(half, MessageConst.PROPERTY_PRODUCER_GROUP, "interop");
        PutMessageResult prepared = put(half);
        if (i % 4 == 0) {
            MessageExt commit = message("InteropTransaction", 0, body, i);
            commit.setSysFlag(types[0]);
            commit.setPreparedTransactionOffset(prepared.getAppendMessageResult().getWroteOffset());
            put(commit);
        }
        if (i % 4 != 2) {
            byte[] offset = String.valueOf(prepared.getAppendMessageResult().getLogicsOffset()).getBytes(StandardCharsets.UTF_8);
            MessageExt operation = message("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, offset, 0);
            operation.setTags("d");
            put(operation);
        }
    }

    private void batch(int i) throws Exception {
        List<Message> parts = new ArrayList<>();
        for (int k = 0; k <= i % MOST_IN_BATCH; k++) {
            Message part = new Message("InteropBatch", "TagB", "key" + i, ("part " + k + " of " + i).getBytes(StandardCharsets.UTF_8));
            MessageClientIDSetter.setUniqID(part);
            parts.add(part);
        }
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic("InteropBatch");
        batch.setQueueId(i % 2);
        batch.setBody(MessageDecoder.encodeMessages(parts));
        batch.setBornTimestamp(System.currentTimeMillis());
        batch.setBornHost(new InetSocketAddress("127.0.0.1", 4321));
        batch.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        MessageAccessor.putProperty(batch, MessageConst.PROPERTY_CLUSTER, "InteropCluster");
        PutMessageResult result = Version.putBatch(store, batch);
        note(batch, result, parts.size(), null);
    }

    private PutMessageResult put(MessageExt message) throws Exception {
        return put(message, message.getBody());
    }

    private PutMessageResult put(MessageExt message, byte[] plainBody) throws Exception {
        PutMessageResult result = Version.put(store, message);
        note(message, result, 1, plainBody);
        return result;
    }

    private void note(MessageExt message, PutMessageResult result, int count, byte[] body) throws Exception {
        if (result.getAppendMessageResult() == null) {
            throw new IllegalStateException("refused: " + message.getTopic() + " " + result);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "written");
        line.put("topic", message.getTopic());
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", result.getAppendMessageResult().getLogicsOffset());
        line.put("physicalOffset", result.getAppendMessageResult().getWroteOffset());
        line.put("size", result.getAppendMessageResult().getWroteBytes());
        line.put("messages", count);
        line.put("status", result.getPutMessageStatus().name());
        line.put("bodySha256", body == null ? null : Reader.sha256(body));
        lines.add(line);
    }
}
