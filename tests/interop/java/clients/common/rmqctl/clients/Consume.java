package rmqctl.clients;

import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Takes messages with the clients that applications use, and prints what they got, one line for each message. */
public final class Consume {
    private static final long LIMIT_MS = 60_000;

    /** NAMESRV, then any number of KIND TOPIC GROUP TAGS COUNT: kind is lite, pull, push, ordered or send. TAGS of a
     * push consumer may be sql: and an SQL92 expression. */
    public static void main(String[] args) throws Exception {
        for (int i = 1; i + 4 < args.length; i += 5) {
            System.out.println("== " + args[i]);
            int count = Integer.parseInt(args[i + 4]);
            switch (args[i]) {
                case "lite": lite(args[0], args[i + 1], args[i + 2], args[i + 3], count); break;
                case "pull": pull(args[0], args[i + 1], args[i + 2], args[i + 3]); break;
                case "push": push(args[0], args[i + 1], args[i + 2], args[i + 3], count, false); break;
                case "ordered": push(args[0], args[i + 1], args[i + 2], args[i + 3], count, true); break;
                case "send": send(args[0], args[i + 1], args[i + 2]); break;
                default: throw new IllegalArgumentException(args[i]);
            }
        }
        System.out.flush();
        // what is committed is on its way; the clients' own threads would keep the process for seconds
        TimeUnit.MILLISECONDS.sleep(1000);
        Runtime.getRuntime().halt(0);
    }

    private static void lite(String namesrv, String topic, String group, String tags, int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, tags);
        consumer.start();
        long end = System.currentTimeMillis() + LIMIT_MS;
        for (int got = 0; got < count && System.currentTimeMillis() < end;) {
            for (MessageExt message : consumer.poll(500)) {
                print(message);
                got++;
            }
        }
        consumer.commitSync();
        consumer.shutdown();
    }

    private static void pull(String namesrv, String topic, String group, String tags) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group);
        consumer.start();
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(topic);
        for (MessageQueue queue : queues) {
            long offset = consumer.minOffset(queue);
            long last = consumer.maxOffset(queue);
            while (offset < last) {
                PullResult result = consumer.pull(queue, tags, offset, 32);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    result.getMsgFoundList().forEach(Consume::print);
                }
                offset = result.getNextBeginOffset();
            }
            System.out.println("queue\t" + queue.getQueueId() + "\t" + last + "\t" + consumer.searchOffset(queue, 0)
                + "\t" + consumer.earliestMsgStoreTime(queue));
        }
        consumer.shutdown();
    }

    private static void push(String namesrv, String topic, String group, String tags, int count, boolean ordered)
        throws Exception {
        List<MessageExt> got = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (tags.startsWith("sql:")) {
            consumer.subscribe(topic, MessageSelector.bySql(tags.substring(4)));
        } else {
            consumer.subscribe(topic, tags);
        }
        if (ordered) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                got.addAll(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                got.addAll(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (got.size() < count && System.currentTimeMillis() < end) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        // what comes too much comes soon
        TimeUnit.MILLISECONDS.sleep(500);
        consumer.shutdown();
        new ArrayList<>(got).forEach(Consume::print);
    }

    private static void send(String namesrv, String topic, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(group);
        producer.start();
        try {
            producer.send(new Message(topic, "a".getBytes()), new MessageQueue(topic, "broker-a", 0));
            System.out.println("sent");
        } catch (MQBrokerException refused) {
            System.out.println("refused\t" + refused.getResponseCode());
        }
        producer.shutdown();
    }

    private static synchronized void print(MessageExt message) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(message.getBody() == null ? new byte[0] : message.getBody());
            StringBuilder hex = new StringBuilder();
            for (byte one : hash) {
                hex.append(String.format("%02x", one));
            }
            System.out.println("message\t" + message.getQueueId() + "\t" + message.getQueueOffset() + "\t"
                + message.getCommitLogOffset() + "\t" + hex + "\t" + message.getTags() + "\t" + message.getKeys() + "\t"
                + message.getFlag() + "\t" + message.getUserProperty("number"));
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
