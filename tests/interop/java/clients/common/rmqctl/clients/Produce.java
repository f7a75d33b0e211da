package rmqctl.clients;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends in every way that producers know while push consumers take it, and prints what was sent and what came. */
public final class Produce {
    private static final long LIMIT_MS = 120_000;
    private static final AtomicInteger GOT = new AtomicInteger();

    /** NAMESRV SUFFIX COUNT: names of topics and groups end in the suffix; ends when so many messages have come. */
    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        String suffix = args[1];
        consume(namesrv, "Plain" + suffix, "plain" + suffix, 1);
        // two members share the queues of an ordered topic
        order(namesrv, "Ordered" + suffix, "ordered" + suffix, "first");
        order(namesrv, "Ordered" + suffix, "ordered" + suffix, "second");
        consume(namesrv, "Pay" + suffix, "pay" + suffix, 16);
        send(namesrv, suffix);
        TransactionMQProducer transactions = transactions(namesrv, suffix);
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (GOT.get() < Integer.parseInt(args[2]) && System.currentTimeMillis() < end) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        // what comes too much comes soon; and consumers commit what they have
        TimeUnit.MILLISECONDS.sleep(1000);
        CONSUMERS.forEach(DefaultMQPushConsumer::shutdown);
        transactions.shutdown();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static final List<DefaultMQPushConsumer> CONSUMERS = new ArrayList<>();

    private static DefaultMQPushConsumer consumer(String namesrv, String group, String name) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        CONSUMERS.add(consumer);
        return consumer;
    }

    private static void consume(String namesrv, String topic, String group, int most) throws Exception {
        DefaultMQPushConsumer consumer = consumer(namesrv, group, group);
        consumer.setMaxReconsumeTimes(most);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            String body = text(message);
            got(group, message);
            context.setDelayLevelWhenNextConsume(1);
            boolean again = body.startsWith("dead") || body.startsWith("again") && message.getReconsumeTimes() == 0;
            return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void order(String namesrv, String topic, String group, String name) throws Exception {
        DefaultMQPushConsumer consumer = consumer(namesrv, group, name);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> got(group, message));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
    }

    private static void send(String namesrv, String suffix) throws Exception {
        String topic = "Plain" + suffix;
        DefaultMQProducer producer = new DefaultMQProducer("sends" + suffix);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("sends" + suffix);
        producer.start();
        for (int i = 0; i < 8; i++) {
            sent("sync", producer.send(new Message(topic, "Tag" + i % 2, "key" + i, bytes("sync " + i))));
        }
        sent("new", producer.send(new Message("New" + suffix, bytes("a topic that is made for it"))));
        byte[] large = new byte[20_000];
        Arrays.fill(large, (byte) 'l');
        sent("large", producer.send(new Message(topic, large)));
        CountDownLatch left = new CountDownLatch(8);
        for (int i = 0; i < 8; i++) {
            producer.send(new Message(topic, bytes("async " + i)), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent("async", result);
                    left.countDown();
                }

                @Override
                public void onException(Throwable problem) {
                    System.out.println("failed\tasync\t" + problem);
                    left.countDown();
                }
            });
        }
        left.await(20, TimeUnit.SECONDS);
        for (int i = 0; i < 4; i++) {
            producer.sendOneway(new Message(topic, bytes("oneway " + i)));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            batch.add(new Message(topic, "Batch", "batch" + i, bytes("batch " + i)));
        }
        sent("batch", producer.send(batch));
        for (int i = 0; i < 2; i++) {
            Message delayed = new Message(topic, bytes("delayed " + i));
            delayed.setDelayTimeLevel(1);
            sent("delayed", producer.send(delayed));
        }
        sent("again", producer.send(new Message(topic, bytes("again 0"))));
        sent("dead", producer.send(new Message(topic, bytes("dead 0"))));
        for (int i = 0; i < 12; i++) {
            Message message = new Message("Ordered" + suffix, bytes("ordered " + i % 3 + " " + i / 3));
            sent("ordered", producer.send(message, (queues, one, key) -> queues.get((Integer) key), i % 3));
        }
        producer.shutdown();
    }

    private static TransactionMQProducer transactions(String namesrv, String suffix) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("pays" + suffix);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("pays" + suffix);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object how) {
                return (LocalTransactionState) how;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                System.out.println("checked\t" + text(message));
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (LocalTransactionState how : LocalTransactionState.values()) {
            Message message = new Message("Pay" + suffix, bytes(how.name()));
            sent("pay", producer.sendMessageInTransaction(message, how));
        }
        return producer;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static synchronized void sent(String kind, SendResult result) {
        System.out.println("sent\t" + kind + "\t" + result.getSendStatus() + "\t" + result.getMsgId() + "\t"
            + result.getOffsetMsgId() + "\t" + result.getMessageQueue().getQueueId() + "\t" + result.getQueueOffset());
    }

    private static synchronized void got(String group, MessageExt message) {
        String text = text(message);
        System.out.println("got\t" + group + "\t" + (text.length() > 100 ? text.length() : text) + "\t"
            + message.getReconsumeTimes() + "\t" + message.getQueueId());
        GOT.incrementAndGet();
    }
}
