package rmqctl.clients;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Prints what RocketMQ's clients say and choose without any server; one line each, columns divided by tabs. */
public final class Facts {
    private static final String[] KEYS = {
        "order-7", "", "a", "Aa", "BB", "polygenelubricants", "\u00fc\u4e2d\ud83d\ude00", "0123456789", "customer/42"};
    private static final Object[] NUMBERS = {0, 1, -1, 7, Integer.MIN_VALUE, Integer.MAX_VALUE, 1L << 31, -5000000000L,
        Long.MIN_VALUE, Long.MAX_VALUE};

    /** `choices`, `texts`, or `offsets GROUP`: what is in the file of a broadcasting member, which it writes then. */
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "choices": queues(); allocations(); break;
            case "texts": producers(); sends(); batches(); consumers(); break;
            case "offsets": offsets(args[1]); break;
            default: throw new IllegalArgumentException(args[0]);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    // ---- choices

    private static void queues() {
        for (int count : new int[] {1, 4, 7, 16}) {
            List<MessageQueue> queues = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                queues.add(new MessageQueue("T", "a", i));
            }
            List<Object> keys = new ArrayList<>(Arrays.asList((Object[]) KEYS));
            keys.addAll(Arrays.asList(NUMBERS));
            for (Object key : keys) {
                int chosen = new SelectMessageQueueByHash().select(queues, new Message(), key).getQueueId();
                print("queue", key instanceof String ? "text" : "number", key, count, chosen);
            }
        }
    }

    private static void allocations() {
        String[][] clusters = {
            {"a", "b"}, {"east@a", "east@b", "west@a", "plain"}, {"east@", "@b", "east@b@", "x@y@z", "north@a"}};
        int[] counts = {1, 2, 3, 7};
        int[] queues = {1, 3, 5};
        for (String[] brokers : clusters) {
            for (int number : queues) {
                List<MessageQueue> all = new ArrayList<>();
                for (String broker : brokers) {
                    for (int i = 0; i < number; i++) {
                        all.add(new MessageQueue("Orders", broker, i));
                    }
                }
                Collections.sort(all);
                for (int count : counts) {
                    List<String> members = new ArrayList<>();
                    for (int i = 0; i < count; i++) {
                        members.add((i % 2 == 0 ? "east" : "west") + "-10.0.0." + i * 7 % 11 + "@" + (4000 + i * 37));
                    }
                    Collections.sort(members);
                    allocate("avg", new AllocateMessageQueueAveragely(), brokers, number, all, members);
                    allocate("circle", new AllocateMessageQueueAveragelyByCircle(), brokers, number, all, members);
                    allocate("hash", new AllocateMessageQueueConsistentHash(), brokers, number, all, members);
                    AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                    rooms.setConsumeridcs(new TreeSet<>(Arrays.asList("east", "north", "")));
                    allocate("room", rooms, brokers, number, all, members);
                    allocate("nearby", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms()),
                        brokers, number, all, members);
                }
            }
        }
    }

    /** The room is what stands before the first of these signs, or the first letter. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            String name = queue.getBrokerName();
            return name.indexOf('@') > 0 ? name.substring(0, name.indexOf('@')) : "other";
        }

        @Override
        public String consumerDeployIn(String client) {
            return client.substring(0, client.indexOf('-'));
        }
    }

    private static void allocate(String name, AllocateMessageQueueStrategy strategy, String[] brokers, int number,
        List<MessageQueue> all, List<String> members) {
        List<String> shares = new ArrayList<>();
        for (String member : members) {
            StringBuilder share = new StringBuilder();
            for (MessageQueue queue : strategy.allocate("g", member, all, members)) {
                share.append(share.length() == 0 ? "" : ",").append(all.indexOf(queue));
            }
            shares.add(share.toString());
        }
        print("allocate", name, String.join(" ", brokers), number, members.size(), String.join(";", shares));
    }

    // ---- texts

    private interface Step {
        void run() throws Exception;
    }

    /** What goes wrong, or `ok`; without the address of a page that is the same for all. */
    private static void said(String name, Step step) {
        String text = "ok";
        try {
            step.run();
        } catch (Throwable problem) {
            text = String.valueOf(problem.getMessage());
            int end = text.indexOf("\nSee http");
            end = end < 0 ? text.indexOf("\nFor more information") : end;
            text = end < 0 ? text : text.substring(0, end);
            Throwable cause = text.startsWith("Failed to initiate") ? problem.getCause() : null;
            text = cause == null ? text : text + ": " + cause.getMessage().split("\n")[0];
            // it got as far as a name server, and there is none
            text = text.contains("RemotingConnectException") ? "sent" : text;
        }
        print("said", name, text);
    }

    private static DefaultMQProducer producer(String group) {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr("127.0.0.1:1");
        return producer;
    }

    private static void producers() {
        said("group blank", () -> producer(" ").start());
        said("group long", () -> producer(repeat("g", 256)).start());
        said("group illegal", () -> producer("a b").start());
        said("group default", () -> producer("DEFAULT_PRODUCER").start());
        DefaultMQProducer failing = producer("a b");
        said("failed start", failing::start);
        said("start after a failed one", failing::start);
        said("send after a failed start", () -> failing.send(new Message("T", new byte[1])));
        // without a name of their own each is an instance of its own, and none is refused
        DefaultMQProducer one = producer("twice");
        one.setInstanceName("same");
        said("send before start", () -> one.send(new Message("T", new byte[1])));
        said("start", one::start);
        said("start once more", one::start);
        DefaultMQProducer other = producer("twice");
        other.setInstanceName("same");
        said("second of a group", other::start);
        said("send of the second", () -> other.send(new Message("T", new byte[1])));
        one.shutdown();
        said("send after shutdown", () -> one.send(new Message("T", new byte[1])));
        said("start after shutdown", one::start);
        said("second when the first has gone", other::start);
        other.shutdown();
    }

    private static void sends() throws Exception {
        DefaultMQProducer producer = producer("sends");
        producer.setMaxMessageSize(100);
        producer.start();
        String[] topics = {"", " ", repeat("t", 128), "a b", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT",
            "SELF_TEST_TOPIC", "rmq_sys_wheel_timer", "TBW102"};
        for (String topic : topics) {
            said("topic " + topic, () -> producer.send(new Message(topic, new byte[1])));
        }
        said("body empty", () -> producer.send(new Message("T", new byte[0])));
        said("body large", () -> producer.send(new Message("T", new byte[101])));
        Message paths = new Message("T", new byte[1]);
        paths.putUserProperty("INNER_MULTI_DISPATCH", "a/b");
        said("multi dispatch", () -> producer.send(paths));
        producer.shutdown();
    }

    private static void batches() throws Exception {
        DefaultMQProducer producer = producer("batches");
        producer.start();
        Message plain = new Message("T", new byte[1]);
        Message delayed = new Message("T", new byte[1]);
        delayed.setDelayTimeLevel(1);
        Message careless = new Message("T", new byte[1]);
        careless.setWaitStoreMsgOK(false);
        Message retry = new Message("%RETRY%g", new byte[1]);
        said("batch of two topics", () -> producer.send(Arrays.asList(plain, new Message("U", new byte[1]))));
        said("batch with a delay", () -> producer.send(Arrays.asList(plain, delayed)));
        said("batch of two ways to wait", () -> producer.send(Arrays.asList(plain, careless)));
        said("batch of a retry topic", () -> producer.send(Arrays.asList(retry, retry)));
        said("batch with an empty body", () -> producer.send(Arrays.asList(plain, new Message("T", new byte[0]))));
        producer.shutdown();
    }

    private static DefaultMQPushConsumer consumer(String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr("127.0.0.1:1");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        return consumer;
    }

    private interface Change {
        void make(DefaultMQPushConsumer consumer) throws Exception;
    }

    private static void consumers() throws Exception {
        said("consumer group long", () -> consumer(repeat("g", 256)).start());
        said("consumer group illegal", () -> consumer("a b").start());
        said("consumer group default", () -> consumer("DEFAULT_CONSUMER").start());
        set("consumer threads 0", one -> one.setConsumeThreadMax(0));
        set("consumer threads 1001", one -> one.setConsumeThreadMax(1001));
        set("consumer span 0", one -> one.setConsumeConcurrentlyMaxSpan(0));
        set("consumer span 65536", one -> one.setConsumeConcurrentlyMaxSpan(65536));
        set("consumer queue count 0", one -> one.setPullThresholdForQueue(0));
        set("consumer topic count 0", one -> one.setPullThresholdForTopic(0));
        set("consumer queue size 1025", one -> one.setPullThresholdSizeForQueue(1025));
        set("consumer topic size 0", one -> one.setPullThresholdSizeForTopic(0));
        set("consumer pause 65536", one -> one.setPullInterval(65536));
        set("consumer batch 1025", one -> one.setConsumeMessageBatchMaxSize(1025));
        set("consumer pull batch 0", one -> one.setPullBatchSize(0));
    }

    private static void set(String name, Change change) throws Exception {
        DefaultMQPushConsumer consumer = consumer("settings");
        change.make(consumer);
        said(name, consumer::start);
    }

    private static String repeat(String text, int count) {
        return String.join("", Collections.nCopies(count, text));
    }

    // ---- progress of a broadcasting member

    private static void offsets(String group) throws Exception {
        ClientConfig config = new ClientConfig();
        config.setNamesrvAddr("127.0.0.1:1");
        MQClientInstance client = MQClientManager.getInstance().getOrCreateMQClientInstance(config);
        print("client", client.getClientId());
        LocalFileOffsetStore store = new LocalFileOffsetStore(client, group);
        store.load();
        Set<MessageQueue> queues = new TreeSet<>();
        for (String broker : new String[] {"broker-a", "broker-b"}) {
            for (int i = 0; i < 3; i++) {
                MessageQueue queue = new MessageQueue("Events", broker, i);
                queues.add(queue);
                print("offset", broker, i, store.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY),
                    store.readOffset(queue, ReadOffsetType.READ_FROM_STORE));
                if (broker.equals("broker-a")) {
                    store.updateOffset(queue, (1L << 33) + i, false);
                }
            }
        }
        store.persistAll(queues);
    }

    private static void print(Object... columns) {
        List<String> texts = new ArrayList<>();
        for (Object column : columns) {
            texts.add(String.valueOf(column));
        }
        System.out.println(String.join("\t", texts));
    }
}
