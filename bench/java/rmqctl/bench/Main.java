package rmqctl.bench;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's side of the benchmarks: one request a line on standard input, one JSON object a line as the answer.
 *
 * walk STORE SCRATCH            every message of the log through checkMessageAndReturnSize with CRC, one thread
 * load STORE                    load(), which recovers
 * rebuild STORE                 load(), start(), and waiting until nothing is left to dispatch
 * put STORE COUNT BODY          putMessage in one thread
 * batch STORE COUNT BODY SIZE   putMessages of SIZE
 *
 * Nothing is shut down: after load, rebuild, put and batch the process is to be ended by closing its standard input.
 */
public final class Main {
    private static final String TOPIC = "BenchTopic";
    private static final int QUEUES = 8;
    private static final int WARM_UP = 100_000;
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            System.out.println(answer(words));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "walk":
                return walk(words[1], words[2]);
            case "load":
                return load(words[1]);
            case "rebuild":
                return rebuild(words[1]);
            case "put":
                return put(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), 1);
            case "batch":
                return put(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String told(long messages, long bytes, double seconds, double drained) {
        return String.format(java.util.Locale.ROOT, "{\"messages\": %d, \"bytes\": %d, \"seconds\": %.6f, \"drained\": %.6f}",
            messages, bytes, seconds, drained);
    }

    private static double since(long begin) {
        return (System.nanoTime() - begin) / 1e9;
    }

    private static DefaultMessageStore open(String directory) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory);
        config.setStorePathCommitLog(directory + File.separator + "commitlog");
        config.setHaListenPort(0);
        config.setFileReservedTime(1_000_000);
        config.setCleanFileForciblyEnable(false);
        config.setDiskMaxUsedSpaceRatio(99);
        config.setTimerWheelEnable(false);
        config.setEnableCompaction(false);
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        topics.put(TOPIC, new TopicConfig(TOPIC, QUEUES, QUEUES));
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("bench");
        return new DefaultMessageStore(config, new BrokerStatsManager("bench", false),
            (topic, queueId, offset, tagsCode, time, bitmap, properties) -> { }, broker, topics);
    }

    private static DefaultMessageStore checker;

    private static String walk(String directory, String scratch) throws Exception {
        if (checker == null) {
            checker = open(scratch);
        }
        File[] files = new File(directory, "commitlog").listFiles();
        Arrays.sort(files);
        long messages = 0;
        long bytes = 0;
        long begin = System.nanoTime();
        for (File file : files) {
            try (FileChannel channel = FileChannel.open(file.toPath(), StandardOpenOption.READ)) {
                MappedByteBuffer buffer = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
                while (true) {
                    DispatchRequest request = checker.getCommitLog().checkMessageAndReturnSize(buffer, true, false, true);
                    if (!request.isSuccess() || request.getMsgSize() <= 0) {
                        break;
                    }
                    messages++;
                    bytes += request.getMsgSize();
                }
            }
        }
        double seconds = since(begin);
        return told(messages, bytes, seconds, seconds);
    }

    private static String load(String directory) throws Exception {
        DefaultMessageStore store = open(directory);
        long begin = System.nanoTime();
        if (!store.load()) {
            throw new IllegalStateException("load() failed");
        }
        double seconds = since(begin);
        return told(units(store), store.getMaxPhyOffset() - store.getMinPhyOffset(), seconds, seconds);
    }

    private static String rebuild(String directory) throws Exception {
        DefaultMessageStore store = open(directory);
        long begin = System.nanoTime();
        if (!store.load()) {
            throw new IllegalStateException("load() failed");
        }
        store.start();
        drain(store);
        double seconds = since(begin);
        return told(units(store), store.getMaxPhyOffset() - store.getMinPhyOffset(), seconds, seconds);
    }

    private static void drain(DefaultMessageStore store) throws Exception {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    private static long units(DefaultMessageStore store) throws Exception {
        long units = 0;
        for (int queue = 0; queue < QUEUES; queue++) {
            units += store.getMaxOffsetInQueue(TOPIC, queue);
        }
        return units;
    }

    private static String put(String directory, int count, int bodySize, int size) throws Exception {
        DefaultMessageStore store = open(directory);
        store.load();
        store.start();
        byte[] body = new byte[bodySize];
        new Random(1).nextBytes(body);
        send(store, made(0, WARM_UP, body, size));
        drain(store);
        // made before the clock starts, as on the other side; and what is left of the making is gone
        List<MessageExtBrokerInner> messages = made(WARM_UP, count, body, size);
        System.gc();
        long from = store.getMaxPhyOffset();
        long begin = System.nanoTime();
        send(store, messages);
        double seconds = since(begin);
        drain(store);
        return told(count, store.getMaxPhyOffset() - from, seconds, since(begin));
    }

    private static List<MessageExtBrokerInner> made(int from, int count, byte[] body, int size) {
        List<MessageExtBrokerInner> messages = new ArrayList<>(count / size);
        for (int i = from; i < from + count; i += size) {
            messages.add(size == 1 ? one(i, body) : several(i, body, size));
        }
        return messages;
    }

    private static void send(DefaultMessageStore store, List<MessageExtBrokerInner> messages) {
        for (MessageExtBrokerInner message : messages) {
            boolean stored = message instanceof MessageExtBatch
                ? store.putMessages((MessageExtBatch) message).isOk() : store.putMessage(message).isOk();
            if (!stored) {
                throw new IllegalStateException("a message was not stored");
            }
        }
    }

    private static String key(int number) {
        return "k" + (10_000_000 + number);
    }

    /** 32 hex digits, without String.format, which would take longer than the put. */
    private static String unique(int number) {
        StringBuilder digits = new StringBuilder("7F00000100002A9F");
        for (int shift = 60; shift >= 0; shift -= 4) {
            digits.append(Character.toUpperCase(Character.forDigit((int) ((long) number >> shift & 15), 16)));
        }
        return digits.toString();
    }

    private static MessageExtBrokerInner one(int number, byte[] body) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setQueueId(number % QUEUES);
        message.setBody(body);
        message.setKeys(key(number));
        message.setTags("TagA");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, unique(number));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private static MessageExtBatch several(int from, byte[] body, int size) {
        List<Message> messages = new ArrayList<>(size);
        for (int i = from; i < from + size; i++) {
            Message message = new Message(TOPIC, "TagA", key(i), body);
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, unique(i));
            messages.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic(TOPIC);
        batch.setQueueId(from / size % QUEUES);
        batch.setBody(MessageDecoder.encodeMessages(messages));
        batch.setBornTimestamp(System.currentTimeMillis());
        batch.setBornHost(HOST);
        batch.setStoreHost(HOST);
        return batch;
    }
}
