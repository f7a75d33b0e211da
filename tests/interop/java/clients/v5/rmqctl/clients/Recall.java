package rmqctl.clients;

import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Takes a timed message back (RECALL_MESSAGE) and prints what came of each.
 *   Recall NAMESRV TOPIC
 */
public final class Recall {
    private static final long DUE_MS = 8_000;
    private static final long LIMIT_MS = 20_000;

    private Recall() {
    }

    public static void main(String[] args) {
        try {
            run(args);
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] args) throws Exception {
        String topic = args[1];
        DefaultMQProducer producer = new DefaultMQProducer("recalls");
        producer.setNamesrvAddr(args[0]);
        // a broker that has just started may be slow
        producer.setSendMsgTimeout(30_000);
        producer.start();
        producer.send(message(topic, "plain", 0));
        SendResult soon = producer.send(message(topic, "soon", 1_000));
        SendResult kept = producer.send(message(topic, "kept", DUE_MS));
        SendResult taken = producer.send(message(topic, "taken back", DUE_MS));
        System.out.println("handle\t" + (taken.getRecallHandle() != null) + "\t" + taken.getSendStatus());
        if (taken.getRecallHandle() != null) {
            recall(producer, topic, "taken back", taken);
            Thread.sleep(3_000);
            recall(producer, topic, "soon", soon);
            recall(producer, "Other", "kept", kept);
        }
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("recalled");
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        Set<String> bodies = new TreeSet<>();
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (System.currentTimeMillis() < end) {
            for (MessageExt one : consumer.poll(500)) {
                bodies.add(new String(one.getBody(), StandardCharsets.UTF_8));
            }
        }
        for (String body : bodies) {
            System.out.println("got\t" + body);
        }
    }

    private static Message message(String topic, String body, long delay) {
        Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        if (delay > 0) {
            message.setDeliverTimeMs(System.currentTimeMillis() + delay);
        }
        return message;
    }

    private static void recall(DefaultMQProducer producer, String topic, String name, SendResult sent) throws Exception {
        try {
            String id = producer.recallMessage(topic, sent.getRecallHandle());
            System.out.println("recalled\t" + name + "\t" + id.equals(sent.getMsgId()));
        } catch (MQBrokerException error) {
            System.out.println("refused\t" + name + "\t" + error.getResponseCode() + "\t" + error.getErrorMessage());
        }
    }
}
