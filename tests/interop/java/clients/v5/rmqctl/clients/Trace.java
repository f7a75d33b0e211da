package rmqctl.clients;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends and consumes messages with traces, and prints the id of each send. */
public final class Trace {
    /** NAMESRV TOPIC. */
    public static void main(String[] args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(null, "java-traced", null, true, null);
        producer.setNamesrvAddr(args[0]);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        Message keyed = message(args[1], "keyed");
        keyed.setTags("paid");
        keyed.setKeys(Arrays.asList("k1", "k2"));
        System.out.println("keyed\t" + producer.send(keyed).getMsgId());
        System.out.println("plain\t" + producer.send(message(args[1], "plain")).getMsgId());
        System.out.println("batch\t"
            + producer.send(Arrays.asList(message(args[1], "b0"), message(args[1], "b1"))).getMsgId());
        Message delayed = message(args[1], "delayed");
        delayed.setDelayTimeLevel(1);
        System.out.println("delayed\t" + producer.send(delayed).getMsgId());
        System.out.println("half\t" + producer.sendMessageInTransaction(message(args[1], "half"), null).getMsgId());
        CountDownLatch left = new CountDownLatch(6);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java-traces", true, null);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            left.countDown();
            String body = new String(messages.get(0).getBody(), StandardCharsets.UTF_8);
            if (body.equals("plain")) {
                throw new IllegalStateException(body);
            }
            return body.equals("b1") ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await(60, TimeUnit.SECONDS);
        TimeUnit.MILLISECONDS.sleep(500);
        consumer.shutdown();
        producer.shutdown();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }
}
