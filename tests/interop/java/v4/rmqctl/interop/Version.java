package rmqctl.interop;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.logging.InternalLoggerFactory;
import org.apache.rocketmq.logging.inner.Level;
import org.apache.rocketmq.logging.inner.Logger;
import org.apache.rocketmq.logging.inner.LoggingBuilder;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What the 4.x line does in its own way. */
final class Version {
    private Version() {
    }

    static void logToStandardError() {
        // else slf4j, which DLedger needs, takes all that is logged, and has no place for it
        InternalLoggerFactory.setCurrentLoggerType(InternalLoggerFactory.LOGGER_INNER);
        Logger.getRootLogger().setLevel(Level.WARN);
        Logger.getRootLogger().addAppender(LoggingBuilder.newAppenderBuilder()
            .withConsoleAppender(LoggingBuilder.SYSTEM_ERR)
            .withLayout(LoggingBuilder.newLayoutBuilder().withSimpleLayout().build()).build());
    }

    /** One at a time: the constructor fills a map that all stores of a process share. */
    static synchronized DefaultMessageStore create(Settings settings) throws Exception {
        boolean deliver = settings.flag("harness.deliverDelayed");
        return new DefaultMessageStore(settings.store(), new BrokerStatsManager("interop", false),
            (topic, queueId, offset, tagsCode, time, bitmap, properties) -> { }, settings.broker()) {
            /** 4.x delivers delayed messages from inside the store, which appends to it. */
            @Override
            public void handleScheduleMessageService(BrokerRole role) {
                if (deliver) {
                    super.handleScheduleMessageService(role);
                }
            }
        };
    }

    static Map<String, List<Integer>> queues(DefaultMessageStore store) {
        Map<String, List<Integer>> found = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) -> {
            List<Integer> ids = new ArrayList<>(queues.keySet());
            ids.sort(null);
            found.put(topic, ids);
        });
        return found;
    }

    static long maxOffset(DefaultMessageStore store, String topic, int queueId) {
        return store.getMaxOffsetInQueue(topic, queueId);
    }

    /** Every unit as {queue offset, physical offset, size, tagsCode}; an address into the ext file is resolved. */
    static List<long[]> units(DefaultMessageStore store, String topic, int queueId, long from, long to) {
        List<long[]> found = new ArrayList<>();
        ConsumeQueue queue = store.getConsumeQueueTable().get(topic).get(queueId);
        long next = from;
        while (next < to) {
            SelectMappedBufferResult part = queue.getIndexBuffer(next);
            if (part == null) {
                break;
            }
            ByteBuffer buffer = part.getByteBuffer();
            for (int i = 0; i + ConsumeQueue.CQ_STORE_UNIT_SIZE <= part.getSize(); i += ConsumeQueue.CQ_STORE_UNIT_SIZE) {
                long physicalOffset = buffer.getLong();
                int size = buffer.getInt();
                long tagsCode = buffer.getLong();
                if (queue.isExtAddr(tagsCode) && queue.getExt(tagsCode) != null) {
                    tagsCode = queue.getExt(tagsCode).getTagsCode();
                }
                found.add(new long[] {next++, physicalOffset, size, tagsCode});
            }
            part.release();
        }
        return found;
    }

    static MessageExt newMessage() {
        return new MessageExtBrokerInner();
    }

    static PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        MessageExtBrokerInner inner = (MessageExtBrokerInner) message;
        inner.setPropertiesString(MessageDecoder.messageProperties2String(inner.getProperties()));
        return store.putMessage(inner);
    }

    static PutMessageResult putBatch(DefaultMessageStore store, MessageExtBatch batch) {
        return store.putMessages(batch);
    }

    /** The 4.x store itself moves a delayed message to the schedule topic. */
    static void delay(MessageExt message, int level) {
        message.setDelayTimeLevel(level);
    }
}
