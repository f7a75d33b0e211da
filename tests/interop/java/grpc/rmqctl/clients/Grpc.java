package rmqctl.clients;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * What RocketMQ's Java client of gRPC sees at a proxy, a line each, without ids and times.
 *   Grpc HOST:PORT PREFIX
 * PREFIX: of the names of topics and groups.
 */
public final class Grpc {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration LONG = Duration.ofSeconds(60);
    private static ClientConfiguration at;
    private static String prefix;

    private Grpc() {
    }

    public static void main(String[] args) throws Exception {
        at = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false).setRequestTimeout(Duration.ofSeconds(10)).build();
        prefix = args[1];
        ConcurrentSkipListSet<String> asked = new ConcurrentSkipListSet<>();
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(at).setTopics(prefix + "plain", prefix + "tx")
            .setTransactionChecker(view -> {
                asked.add(body(view));
                return body(view).equals("orphan-back") ? TransactionResolution.ROLLBACK : TransactionResolution.COMMIT;
            }).build();
        sends(producer);
        visibility(producer);
        ordered(producer);
        delayed(producer);
        transactions(producer, asked);
        pushed(producer, "g-push", "pushed", null, "bad", 6);
        pushed(producer, "g-push-fifo", "pushed-fifo", "m", "two", 5);
        refused(producer);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void show(String what, Object found) {
        System.out.println("= " + what + ": " + found);
    }

    private static String failing(Callable<Object> call) {
        try {
            Object found = call.call();
            return found == null ? "OK" : found.getClass().getSimpleName();
        } catch (ClientException error) {
            String text = String.valueOf(error.getMessage());
            int code = text.indexOf("response-code=");
            return error.getClass().getSimpleName() + (code < 0 ? "" : " " + text.substring(code + 14, code + 19));
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(prefix + topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(MessageView view) {
        ByteBuffer body = view.getBody().duplicate();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        String text = new String(bytes, StandardCharsets.UTF_8);
        return text.length() > 40 ? text.substring(0, 40) + text.length() : text;
    }

    private static String seen(MessageView view) {
        TreeMap<String, String> properties = new TreeMap<>(view.getProperties());
        properties.remove("__transactionId__");
        return body(view) + " " + view.getTopic() + " tag " + view.getTag() + " keys " + view.getKeys() + " " + properties + " group "
            + view.getMessageGroup() + " attempt " + view.getDeliveryAttempt() + " timed "
            + view.getDeliveryTimestamp().isPresent();
    }

    private static SimpleConsumer consumer(String group, String topic, FilterExpression filter) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(at).setConsumerGroup(prefix + group)
            .setAwaitDuration(Duration.ofSeconds(5)).setSubscriptionExpressions(Collections.singletonMap(prefix + topic, filter)).build();
    }

    private static List<MessageView> take(SimpleConsumer consumer, int count, Duration invisible, boolean acks) throws Exception {
        List<MessageView> found = new ArrayList<>();
        long end = System.currentTimeMillis() + LONG.toMillis();
        while (found.size() < count && System.currentTimeMillis() < end) {
            for (MessageView view : consumer.receive(count - found.size(), invisible)) {
                if (acks) {
                    consumer.ack(view);
                }
                found.add(view);
            }
        }
        return found;
    }

    private static List<String> all(List<MessageView> found) {
        List<String> shown = new ArrayList<>();
        for (MessageView view : found) {
            shown.add(seen(view));
        }
        Collections.sort(shown);
        return shown;
    }

    private static void consumed(String what, String group, String topic, FilterExpression filter, int count) throws Exception {
        try (SimpleConsumer consumer = consumer(group, topic, filter)) {
            show(what, all(take(consumer, count, LONG, true)));
            show("and", consumer.receive(16, LONG).size());
        }
    }

    private static void sends(Producer producer) throws Exception {
        StringBuilder large = new StringBuilder();
        for (int i = 0; i < 100_000; i++) {
            large.append('b');
        }
        producer.send(message("plain", "plain").build());
        producer.send(message("plain", "all").setTag("a").setKeys("k1", "k2").addProperty("p", "q").addProperty("n", "5").build());
        producer.send(message("plain", large.toString()).setTag("b").build());
        producer.sendAsync(message("plain", "asynchronous").setTag("a").addProperty("n", "7").build()).get();
        consumed("received", "g-all", "plain", FilterExpression.SUB_ALL, 4);
        consumed("by tag", "g-tags", "plain", new FilterExpression("a || c"), 2);
        consumed("by SQL", "g-sql", "plain", new FilterExpression("n > 5 OR p = 'q'", FilterExpressionType.SQL92), 2);
    }

    private static void visibility(Producer producer) throws Exception {
        try (SimpleConsumer consumer = consumer("g-invisible", "seen", FilterExpression.SUB_ALL)) {
            producer.send(message("seen", "again").build());
            List<MessageView> first = take(consumer, 1, Duration.ofSeconds(10), false);
            producer.send(message("seen", "changed").build());
            MessageView changed = take(consumer, 1, Duration.ofSeconds(10), false).get(0);
            consumer.changeInvisibleDuration(changed, Duration.ofSeconds(25));
            show("first attempts", all(first) + " " + seen(changed));
            show("not acknowledged", all(take(consumer, 1, LONG, true)));
            show("old handle", failing(() -> {
                consumer.ack(first.get(0));
                return null;
            }));
            show("changed", all(take(consumer, 1, LONG, true)));
        }
    }

    private static void ordered(Producer producer) throws Exception {
        for (int i = 0; i < 6; i++) {
            producer.send(message("fifo", "" + i).setMessageGroup("m" + i % 2).build());
        }
        consumed("in order", "g-fifo", "fifo", FilterExpression.SUB_ALL, 6);
    }

    private static void delayed(Producer producer) throws Exception {
        long due = System.currentTimeMillis() + 5000;
        producer.send(message("delay", "later").setDeliveryTimestamp(due).build());
        SendReceipt recalled = producer.send(message("delay", "recalled").setDeliveryTimestamp(due).build());
        show("recall", failing(() -> producer.recallMessage(prefix + "delay", recalled.getRecallHandle())));
        show("recall garbage", failing(() -> producer.recallMessage(prefix + "delay", "garbage")));
        consumed("delayed", "g-delay", "delay", FilterExpression.SUB_ALL, 1);
        show("not early", System.currentTimeMillis() > due);
    }

    private static void transactions(Producer producer, ConcurrentSkipListSet<String> asked) throws Exception {
        for (String text : new String[] {"commit", "rollback", "orphan", "orphan-back"}) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message("tx", text).setKeys("t").build(), transaction);
            if (text.equals("commit")) {
                transaction.commit();
            } else if (text.equals("rollback")) {
                transaction.rollback();
            }
        }
        try (SimpleConsumer consumer = consumer("g-tx", "tx", FilterExpression.SUB_ALL)) {
            show("committed", all(take(consumer, 2, LONG, true)));
            long end = System.currentTimeMillis() + 60_000;
            while (asked.size() < 2 && System.currentTimeMillis() < end) { // each is asked about in a turn of its own
                Thread.sleep(100);
            }
            show("asked for", asked);
            TreeSet<String> others = new TreeSet<>();
            for (MessageView view : consumer.receive(16, LONG)) {
                others.add(body(view));
            }
            // a broker may ask twice
            others.remove("orphan");
            show("others", others);
        }
    }

    private static void pushed(Producer producer, String group, String topic, String of, String bad, int count) throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(at).setConsumerGroup(prefix + group)
            .setSubscriptionExpressions(Collections.singletonMap(prefix + topic, FilterExpression.SUB_ALL)).setMessageListener(view -> {
                seen.add(of == null ? body(view) + " " + view.getDeliveryAttempt() : body(view));
                return body(view).equals(bad) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        for (String text : new String[] {"one", "two", "three", "bad"}) {
            if (of == null || !text.equals("bad")) {
                MessageBuilder made = message(topic, text);
                producer.send((of == null ? made : made.setMessageGroup(of)).build());
            }
        }
        long end = System.currentTimeMillis() + LONG.toMillis();
        while (seen.size() < count && System.currentTimeMillis() < end) {
            Thread.sleep(100);
        }
        List<String> shown = new ArrayList<>(seen);
        if (of == null) {
            Collections.sort(shown);
        }
        show("pushed", shown);
        consumer.close();
    }

    private static void refused(Producer producer) {
        show("unknown topic", failing(() -> producer.send(message("nowhere", "x").build())));
        show("more than 4 MiB", failing(() -> producer.send(PROVIDER.newMessageBuilder().setTopic(prefix + "large").setBody(new byte[(4 << 20) + 1]).build())));
        show("wrong type", failing(() -> producer.send(message("plain", "x").setMessageGroup("m").build())));
        show("too far", failing(() -> producer.send(message("delay", "x").setDeliveryTimestamp(System.currentTimeMillis() + 1_000_000_000L).build())));
        show("unknown topic to consume", failing(() -> consumer("g-all", "nowhere", FilterExpression.SUB_ALL)));
        show("bad time", failing(() -> consumer("g-all", "plain", FilterExpression.SUB_ALL).receive(1, Duration.ofSeconds(5))));
    }
}
