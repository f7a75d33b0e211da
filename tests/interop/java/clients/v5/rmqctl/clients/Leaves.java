package rmqctl.clients;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends what is still open when the broker stops: messages of a delay level and of the timer, and transactions. */
public final class Leaves {
    /** NAMESRV TOPIC LEVEL SECONDS: three of each; the transactions get no answer, however often they are asked for. */
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        DefaultMQProducer producer = new DefaultMQProducer("leaves");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        for (int i = 0; i < 3; i++) {
            Message delayed = new Message(topic, bytes("waits " + i));
            delayed.setDelayTimeLevel(Integer.parseInt(args[2]));
            sent("level", producer.send(delayed));
            Message timed = new Message(topic, bytes("timed " + i));
            timed.setDelayTimeSec(Long.parseLong(args[3]));
            sent("timer", producer.send(timed));
        }
        producer.shutdown();
        TransactionMQProducer open = new TransactionMQProducer("opens");
        open.setNamesrvAddr(args[0]);
        open.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        open.start();
        for (int i = 0; i < 3; i++) {
            sent("open", open.sendMessageInTransaction(new Message(topic, bytes("open " + i)), null));
        }
        open.shutdown();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void sent(String kind, SendResult result) {
        System.out.println("sent\t" + kind + "\t" + result.getSendStatus() + "\t" + result.getMsgId());
    }
}
