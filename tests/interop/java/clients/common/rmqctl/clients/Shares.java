package rmqctl.clients;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A member of a group that fails each message once, and answers those that want a reply; and one that asks. */
public final class Shares {
    /**
     * NAMESRV TOPIC GROUP LEVEL [asks]: fails each message once, for it to come back after the delay of LEVEL, and ends
     * with standard input. With `asks` it sends a request to TOPIC-asks first.
     */
    public static void main(String[] args) throws Exception {
        int level = Integer.parseInt(args[3]);
        DefaultMQProducer producer = new DefaultMQProducer("shares");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                try {
                    if (message.getProperty("CORRELATION_ID") != null) {
                        producer.send(MessageUtil.createReplyMessage(message, ("re: " + body).getBytes()));
                        print("replied\t" + body);
                        continue;
                    }
                } catch (Exception error) {
                    print("failed\t" + error);
                }
                print("got\t" + body + "\t" + message.getReconsumeTimes());
                if (message.getReconsumeTimes() == 0) {
                    context.setDelayLevelWhenNextConsume(level);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.start();
        print("started");
        if (args.length > 4) {
            ask(producer, args[1] + "-asks");
        }
        while (System.in.read() >= 0) {
            TimeUnit.MILLISECONDS.sleep(10);
        }
        consumer.shutdown();
        producer.shutdown();
        print("ended");
        Runtime.getRuntime().halt(0);
    }

    /** Who asks is a producer of the same process as the consumer: the broker has to find its way back. */
    private static void ask(DefaultMQProducer producer, String topic) {
        try {
            Message reply = producer.request(new Message(topic, "java asks".getBytes()), 30_000);
            print("reply\t" + new String(reply.getBody(), StandardCharsets.UTF_8));
        } catch (Exception error) {
            print("failed\t" + error);
        }
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
