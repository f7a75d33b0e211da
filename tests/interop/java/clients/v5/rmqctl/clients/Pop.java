package rmqctl.clients;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Sends ten messages to a topic of one queue, and takes them by POP so that they end in every state. */
public final class Pop {
    private static final long LIMIT_MS = 60_000;
    private static final long HOUR_MS = 3_600_000;
    private static MQClientAPIImpl api;
    private static String broker;
    private static String topic;
    private static String group;

    /** NAMESRV BROKER TOPIC GROUP. */
    public static void main(String[] args) throws Exception {
        broker = args[1];
        topic = args[2];
        group = args[3];
        DefaultMQProducer producer = new DefaultMQProducer("pops");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        api = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        send(producer, "acked", "acked", "revived", "longer", "half", "half", "flying", "flying");
        for (MessageExt message : take(2, HOUR_MS)) {
            acknowledge(message);
        }
        take(1, 3_000);
        // long enough that the broker does not come to it before it stops
        longer(take(1, HOUR_MS / 2).get(0));
        acknowledge(take(2, HOUR_MS).get(0));
        take(2, HOUR_MS);
        // one of them comes again, by the retry topic, which a broker looks into along with the topic
        long end = System.currentTimeMillis() + LIMIT_MS;
        List<MessageExt> again = List.of();
        while (again.isEmpty() && System.currentTimeMillis() < end) {
            TimeUnit.MILLISECONDS.sleep(500);
            again = pop(1, HOUR_MS);
        }
        for (MessageExt message : again) {
            acknowledge(message);
        }
        send(producer, "left", "left");
        producer.shutdown();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void send(DefaultMQProducer producer, String... kinds) throws Exception {
        for (String kind : kinds) {
            SendResult result = producer.send(new Message(topic, kind.getBytes(StandardCharsets.UTF_8)));
            System.out.println("sent\t" + kind + "\t" + result.getQueueOffset() + "\t" + result.getMsgId());
        }
    }

    /** So many, though a busy broker comes to some of them late. */
    private static List<MessageExt> take(int number, long invisible) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        List<MessageExt> found = new ArrayList<>(pop(number, invisible));
        while (found.size() < number && System.currentTimeMillis() < end) {
            TimeUnit.MILLISECONDS.sleep(100);
            found.addAll(pop(number - found.size(), invisible));
        }
        return found;
    }

    private static List<MessageExt> pop(int most, long invisible) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(0);
        header.setMaxMsgNums(most);
        header.setInvisibleTime(invisible);
        header.setPollTime(0);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setOrder(false);
        header.setExpType("TAG");
        header.setExp("*");
        CompletableFuture<List<MessageExt>> got = new CompletableFuture<>();
        api.popMessageAsync("broker-a", broker, header, 10_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                List<MessageExt> found = result.getMsgFoundList();
                got.complete(found == null ? List.of() : found);
            }

            @Override
            public void onException(Throwable error) {
                got.completeExceptionally(error);
            }
        });
        List<MessageExt> found = got.get(10, TimeUnit.SECONDS);
        for (MessageExt message : found) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            System.out.println("popped\t" + body + "\t" + message.getTopic() + "\t" + message.getReconsumeTimes());
        }
        return found;
    }

    private static void acknowledge(MessageExt message) throws Exception {
        String info = message.getProperty(MessageConst.PROPERTY_POP_CK);
        String[] parts = ExtraInfoUtil.split(info);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, message.getTopic(), group));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setConsumerGroup(group);
        header.setExtraInfo(info);
        Answer answer = new Answer();
        api.ackMessageAsync(broker, 10_000, answer, header);
        System.out.println("acknowledged\t" + answer.get(10, TimeUnit.SECONDS).getStatus());
    }

    private static void longer(MessageExt message) throws Exception {
        String info = message.getProperty(MessageConst.PROPERTY_POP_CK);
        String[] parts = ExtraInfoUtil.split(info);
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, message.getTopic(), group));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setConsumerGroup(group);
        header.setExtraInfo(info);
        header.setInvisibleTime(HOUR_MS);
        Answer answer = new Answer();
        api.changeInvisibleTimeAsync("broker-a", broker, header, 10_000, answer);
        System.out.println("longer\t" + answer.get(10, TimeUnit.SECONDS).getStatus());
    }

    private static final class Answer extends CompletableFuture<AckResult> implements AckCallback {
        @Override
        public void onSuccess(AckResult result) {
            complete(result);
        }

        @Override
        public void onException(Throwable error) {
            completeExceptionally(error);
        }
    }
}
