package rmqctl.clients;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.api.MessageTrack;

/** Consumes a topic by tags until nothing is left, and prints what mqadmin then says of who has consumed messages. */
public final class Track {
    private static final long LIMIT_MS = 60_000;

    /** NAMESRV TOPIC GROUP TAGS, then any number of offset ids. */
    public static void main(String[] args) throws Exception {
        AtomicInteger got = new AtomicInteger();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName(args[2]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(args[1], args[3]);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            got.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(args[0]);
        admin.setInstanceName("track");
        admin.start();
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (System.currentTimeMillis() < end && left(admin, args[2], args[1]) != 0) {
            TimeUnit.MILLISECONDS.sleep(200);
        }
        System.out.println("consumed\t" + got.get() + "\t" + left(admin, args[2], args[1]));
        for (int i = 4; i < args.length; i++) {
            MessageExt message = admin.viewMessage(args[1], args[i]);
            for (MessageTrack track : admin.messageTrackDetail(message)) {
                System.out.println("track\t" + args[i] + "\t" + track.getConsumerGroup() + "\t" + track.getTrackType());
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** Messages that the group has still before it; -1 where nobody knows yet. */
    private static long left(DefaultMQAdminExt admin, String group, String topic) {
        try {
            return admin.examineConsumeStats(group, topic).computeTotalDiff();
        } catch (Exception unknown) {
            return -1;
        }
    }
}
