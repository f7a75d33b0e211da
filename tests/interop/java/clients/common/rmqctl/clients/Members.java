package rmqctl.clients;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Producers and members of groups that come and go as standard input says; one line of output for what each does.
 *   join NAME GROUP TOPIC KIND [RETRIES]  KIND: together, ordered or broadcast; RETRIES: maxReconsumeTimes
 *   leave NAME
 *   keys TOPIC KEY...                     sends the key to the queue that it chooses
 *   send TOPIC SETTING MILLISECONDS COUNT sends as many with sendLatencyFaultEnable = SETTING
 * A body `fail N ...` fails N times. `got NAME BODY TIMES BROKER QUEUE TOPIC BEGIN END` has milliseconds since 1970.
 */
public final class Members {
    private static final long WORK_MS = 20;
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        print("ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "join": join(args[0], words); break;
                case "leave": CONSUMERS.remove(words[1]).shutdown(); break;
                case "keys": keys(args[0], words); break;
                case "send": send(args[0], words); break;
                default: throw new IllegalArgumentException(line);
            }
            print("done\t" + line);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void join(String namesrv, String[] words) throws Exception {
        String name = words[1];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[2]);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // a retry topic that was just made is found soon
        consumer.setPollNameServerInterval(1000);
        consumer.subscribe(words[3], "*");
        if (words.length > 5) {
            consumer.setMaxReconsumeTimes(Integer.parseInt(words[5]));
        }
        if (words[4].equals("ordered")) {
            consumer.setInstanceName(name);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                works(name, messages) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            if (words[4].equals("broadcast")) {
                // the enum has another package in 4.x
                for (var model : consumer.getMessageModel().getDeclaringClass().getEnumConstants()) {
                    if (model.name().equals("BROADCASTING")) {
                        consumer.setMessageModel(model);
                    }
                }
            } else {
                consumer.setInstanceName(name);
            }
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                works(name, messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        CONSUMERS.put(name, consumer);
    }

    private static boolean works(String name, List<MessageExt> messages) {
        long begin = System.currentTimeMillis();
        try {
            TimeUnit.MILLISECONDS.sleep(WORK_MS);
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
        boolean isDone = true;
        for (MessageExt message : messages) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            String[] words = body.split(" ");
            isDone &= !words[0].equals("fail") || message.getReconsumeTimes() >= Integer.parseInt(words[1]);
            print("got\t" + name + "\t" + body + "\t" + message.getReconsumeTimes() + "\t" + message.getBrokerName()
                + "\t" + message.getQueueId() + "\t" + message.getTopic() + "\t" + begin + "\t"
                + System.currentTimeMillis());
        }
        return isDone;
    }

    private static DefaultMQProducer producer(String namesrv) {
        DefaultMQProducer producer = new DefaultMQProducer("members");
        producer.setNamesrvAddr(namesrv);
        return producer;
    }

    private static void keys(String namesrv, String[] words) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        producer.start();
        for (int i = 2; i < words.length; i++) {
            byte[] body = words[i].getBytes(StandardCharsets.UTF_8);
            SendResult result = producer.send(new Message(words[1], body), new SelectMessageQueueByHash(), words[i]);
            print("key\t" + words[i] + "\t" + result.getMessageQueue().getBrokerName() + "\t"
                + result.getMessageQueue().getQueueId());
        }
        producer.shutdown();
    }

    private static void send(String namesrv, String[] words) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        producer.setSendLatencyFaultEnable(Boolean.parseBoolean(words[2]));
        producer.setSendMsgTimeout(Integer.parseInt(words[3]));
        producer.start();
        long begin = System.currentTimeMillis();
        List<String> failed = new ArrayList<>();
        int count = Integer.parseInt(words[4]);
        for (int i = 0; i < count; i++) {
            try {
                producer.send(new Message(words[1], ("java " + i).getBytes(StandardCharsets.UTF_8)));
            } catch (Exception problem) {
                failed.add(problem.toString().split("\n")[0]);
            }
        }
        print("sent\t" + (count - failed.size()) + "\t" + failed.size() + "\t" + (System.currentTimeMillis() - begin)
            + "\t" + String.join(" | ", failed));
        producer.shutdown();
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
