package rmqctl.clients;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends messages with a delivery time of their own, and prints how late each comes, in ms. */
public final class Timed {
    private static final long LIMIT_MS = 60_000;

    /** NAMESRV TOPIC LONG COUNT: two that wait for LONG seconds as well; ends when so many messages have come. */
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        long longer = Long.parseLong(args[2]);
        int count = Integer.parseInt(args[3]);
        Map<String, Long> due = new HashMap<>();
        DefaultMQProducer producer = new DefaultMQProducer("times");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        for (int i = 0; i < 2 && longer > 0; i++) {
            Message message = new Message(topic, bytes("long " + i));
            message.setDelayTimeSec(longer);
            send(producer, message, due, System.currentTimeMillis() + longer * 1000);
        }
        for (int i = 0; i < 3 && longer > 0; i++) {
            long now = System.currentTimeMillis();
            Message seconds = new Message(topic, bytes("seconds " + i));
            seconds.setDelayTimeSec(2 + i);
            send(producer, seconds, due, now + (2 + i) * 1000);
            Message milliseconds = new Message(topic, bytes("ms " + i));
            milliseconds.setDelayTimeMs(1500 + i);
            send(producer, milliseconds, due, now + 1500 + i);
            Message at = new Message(topic, bytes("at " + i));
            at.setDeliverTimeMs(now + 3000);
            send(producer, at, due, now + 3000);
        }
        producer.shutdown();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("timed");
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        long end = System.currentTimeMillis() + LIMIT_MS;
        for (int got = 0; got < count && System.currentTimeMillis() < end;) {
            for (MessageExt message : consumer.poll(100)) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                long late = due.containsKey(body) ? message.getStoreTimestamp() - due.get(body) : 0;
                System.out.println("got\t" + body + "\t" + late);
                got++;
            }
        }
        consumer.commitSync();
        consumer.shutdown();
        System.out.flush();
        // what is committed is on its way
        TimeUnit.MILLISECONDS.sleep(1000);
        Runtime.getRuntime().halt(0);
    }

    private static void send(DefaultMQProducer producer, Message message, Map<String, Long> due, long at) throws Exception {
        due.put(new String(message.getBody(), StandardCharsets.UTF_8), at);
        System.out.println("sent\t" + producer.send(message).getSendStatus());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
