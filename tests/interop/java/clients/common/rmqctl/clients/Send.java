package rmqctl.clients;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends messages of every kind, the same body never twice, and prints where each of them went. */
public final class Send {
    private static final String TEXT = "häl-lo ";

    /** NAMESRV TOPIC COUNT: so many plain ones, and a large one, a batch, a delayed one, two transactions. */
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        DefaultMQProducer producer = new DefaultMQProducer("sends");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            Message message = new Message(topic, "Tag" + i % 2, "key" + i + " all", bytes(TEXT + i));
            message.putUserProperty("number", String.valueOf(i));
            message.setFlag(i);
            sent("plain " + i, producer.send(message));
        }
        byte[] large = new byte[20_000];
        Arrays.fill(large, (byte) 'j');
        sent("large", producer.send(new Message(topic, "Large", large)));
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            batch.add(new Message(topic, "Batch", "batch" + i, bytes("batch " + i)));
        }
        sent("batch", producer.send(batch));
        Message delayed = new Message(topic, "Delayed", bytes("delayed"));
        delayed.setDelayTimeLevel(1);
        sent("delayed", producer.send(delayed));
        producer.shutdown();
        TransactionMQProducer pays = new TransactionMQProducer("pays");
        pays.setNamesrvAddr(args[0]);
        pays.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object how) {
                return (LocalTransactionState) how;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        pays.start();
        for (LocalTransactionState how : new LocalTransactionState[] {
            LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE}) {
            sent(how.name(), pays.sendMessageInTransaction(new Message(topic, "Pay", bytes(how.name())), how));
        }
        pays.shutdown();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void sent(String what, SendResult result) {
        System.out.println("sent\t" + what + "\t" + result.getSendStatus() + "\t"
            + result.getMessageQueue().getBrokerName() + "\t" + result.getMessageQueue().getQueueId() + "\t"
            + result.getQueueOffset() + "\t" + result.getMsgId());
    }
}
