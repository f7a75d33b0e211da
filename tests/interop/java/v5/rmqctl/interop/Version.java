package rmqctl.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What the 5.x line does in its own way. */
final class Version {
    private Version() {
    }

    /** Its logback is told by logback.xml. */
    static void logToStandardError() {
    }

    /** One at a time: the constructor fills a map that all stores of a process share. */
    static synchronized DefaultMessageStore create(Settings settings) throws Exception {
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        Properties given = settings.below("topic.");
        for (String name : given.stringPropertyNames()) {
            String[] parts = given.getProperty(name).split(";");
            int queues = Integer.parseInt(parts[0]);
            TopicConfig config = new TopicConfig(name, queues, queues);
            for (int i = 1; i < parts.length; i++) {
                String[] pair = parts[i].split("=", 2);
                config.getAttributes().put(pair[0], pair[1]);
            }
            topics.put(name, config);
        }
        return new DefaultMessageStore(settings.store(), new BrokerStatsManager("interop", false),
            (topic, queueId, offset, tagsCode, time, bitmap, properties) -> { }, settings.broker(), topics);
    }

    static Map<String, List<Integer>> queues(DefaultMessageStore store) {
        Map<String, List<Integer>> found = new TreeMap<>();
        store.getQueueStore().getConsumeQueueTable().forEach((topic, queues) -> {
            List<Integer> ids = new ArrayList<>(queues.keySet());
            ids.sort(null);
            found.put(topic, ids);
        });
        return found;
    }

    static long maxOffset(DefaultMessageStore store, String topic, int queueId) throws Exception {
        return store.getMaxOffsetInQueue(topic, queueId);
    }

    /** Every unit as {queue offset, physical offset, size, tagsCode}; an address into the ext file is resolved. */
    static List<long[]> units(DefaultMessageStore store, String topic, int queueId, long from, long to) throws Exception {
        List<long[]> found = new ArrayList<>();
        long next = from;
        while (next < to) {
            long before = next;
            ReferredIterator<CqUnit> units = store.getConsumeQueue(topic, queueId).iterateFrom(next);
            if (units == null) {
                break;
            }
            while (units.hasNext()) {
                CqUnit unit = units.next();
                long tagsCode = unit.getCqExtUnit() == null ? unit.getTagsCode() : unit.getCqExtUnit().getTagsCode();
                found.add(new long[] {unit.getQueueOffset(), unit.getPos(), unit.getSize(), tagsCode});
                next = unit.getQueueOffset() + Math.max(1, unit.getBatchNum());
            }
            units.release();
            if (next == before) {
                break;
            }
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

    /** In 5.x the broker moves a delayed message to the schedule topic before the store sees it. */
    static void delay(MessageExt message, int level) {
        message.setDelayTimeLevel(level);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(message.getQueueId()));
        message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
        message.setQueueId(level - 1);
    }
}
