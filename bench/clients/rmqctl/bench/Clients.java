package rmqctl.bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.sysflag.PullSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/**
 * RocketMQ's clients, which measure brokers: one request a line on standard input, one JSON object a line as the answer.
 *
 * pull NAMESRV TOPIC THREADS            all messages of the topic, once, the queues shared out to threads
 * wake NAMESRV TOPIC COUNT              how long after a send begins a consumer has it that waits in a held pull
 * send NAMESRV TOPIC THREADS COUNT BODY synchronous sends
 * load NAMESRV TOPIC THREADS SECONDS    pulls and lookups, one after the other, while threads send as fast as they can
 * idle BROKER TOPIC COUNT               so many connections with a heartbeat and a held pull each, until `leave`
 * leave
 *
 * Times are in seconds.
 */
public final class Clients {
    private static final int AT_ONCE = 32;
    private static final long SUSPEND_MS = 15_000;
    private static final long HEARTBEAT_MS = 30_000;
    private static final long LIMIT_S = 600;
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static final Map<String, DefaultMQPullConsumer> CONSUMERS = new HashMap<>();
    private static Idle idle;

    private Clients() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(answer(line.split("\t")));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "pull":
                return pull(words[1], words[2], Integer.parseInt(words[3]));
            case "wake":
                return wake(words[1], words[2], Integer.parseInt(words[3]));
            case "send":
                return send(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]),
                    new byte[Integer.parseInt(words[5])]);
            case "load":
                return load(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            case "idle":
                idle = new Idle(words[1], words[2], Integer.parseInt(words[3]));
                return idle.held();
            case "leave":
                idle.leave();
                return "{}";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static DefaultMQProducer producer(String namesrv) throws MQClientException {
        DefaultMQProducer producer = PRODUCERS.get(namesrv);
        if (producer == null) {
            producer = new DefaultMQProducer("bench-sends");
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("sends-" + namesrv);
            producer.start();
            PRODUCERS.put(namesrv, producer);
        }
        return producer;
    }

    private static DefaultMQPullConsumer consumer(String namesrv) throws MQClientException {
        DefaultMQPullConsumer consumer = CONSUMERS.get(namesrv);
        if (consumer == null) {
            consumer = new DefaultMQPullConsumer("bench-pulls");
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName("pulls-" + namesrv);
            consumer.start();
            CONSUMERS.put(namesrv, consumer);
        }
        return consumer;
    }

    /** Run `work` in so many threads, each with its number. */
    private static void inThreads(int threads, Work work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<Void>> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int number = i;
            running.add(pool.submit((Callable<Void>) () -> {
                work.run(number);
                return null;
            }));
        }
        try {
            for (Future<Void> one : running) {
                one.get(LIMIT_S, TimeUnit.SECONDS);
            }
        } finally {
            pool.shutdownNow();
        }
    }

    private interface Work {
        void run(int number) throws Exception;
    }

    private static double seconds(long begin) {
        return (System.nanoTime() - begin) / 1e9;
    }

    private static String pull(String namesrv, String topic, int threads) throws Exception {
        DefaultMQPullConsumer consumer = consumer(namesrv);
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
        AtomicLong bytes = new AtomicLong();
        AtomicLong messages = new AtomicLong();
        long begin = System.nanoTime();
        inThreads(threads, number -> {
            for (int i = number; i < queues.size(); i += threads) {
                long offset = consumer.minOffset(queues.get(i));
                PullResult result = consumer.pull(queues.get(i), "*", offset, AT_ONCE);
                while (result.getNextBeginOffset() > offset) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        bytes.addAndGet(message.getStoreSize());
                    }
                    messages.addAndGet(result.getMsgFoundList().size());
                    offset = result.getNextBeginOffset();
                    if (offset >= result.getMaxOffset()) {
                        break;
                    }
                    result = consumer.pull(queues.get(i), "*", offset, AT_ONCE);
                }
            }
        });
        return String.format(Locale.ROOT, "{\"messages\": %d, \"bytes\": %d, \"seconds\": %.6f}",
            messages.get(), bytes.get(), seconds(begin));
    }

    private static String wake(String namesrv, String topic, int count) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        DefaultMQPullConsumer consumer = consumer(namesrv);
        MessageQueue queue = producer.send(new Message(topic, new byte[100])).getMessageQueue();
        double[] taken = new double[count];
        ExecutorService pool = Executors.newSingleThreadExecutor();
        for (int i = 0; i < count; i++) {
            long end = consumer.maxOffset(queue);
            Future<Long> came = pool.submit(() -> {
                PullResult result = consumer.pullBlockIfNotFound(queue, "*", end, AT_ONCE);
                if (result.getMsgFoundList().size() != 1) {
                    throw new IllegalStateException(result.toString());
                }
                return System.nanoTime();
            });
            // until the pull is held
            TimeUnit.MILLISECONDS.sleep(25);
            long begin = System.nanoTime();
            producer.send(new Message(topic, new byte[100]), queue);
            taken[i] = (came.get(LIMIT_S, TimeUnit.SECONDS) - begin) / 1e9;
        }
        pool.shutdownNow();
        return "{" + spread("wake", taken) + "}";
    }

    private static String send(String namesrv, String topic, int threads, int count, byte[] body) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        producer.send(new Message(topic, body));
        AtomicInteger left = new AtomicInteger(count);
        long begin = System.nanoTime();
        inThreads(threads, number -> {
            while (left.getAndDecrement() > 0) {
                SendResult result = producer.send(new Message(topic, "TagA", body));
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException(result.toString());
                }
            }
        });
        return String.format(Locale.ROOT, "{\"messages\": %d, \"seconds\": %.6f}", count, seconds(begin));
    }

    private static final class Sent {
        final long at = System.nanoTime();
        final String key;
        final SendResult result;

        Sent(String key, SendResult result) {
            this.key = key;
            this.result = result;
        }
    }

    private static String load(String namesrv, String topic, int threads, int seconds) throws Exception {
        DefaultMQProducer producer = producer(namesrv);
        DefaultMQPullConsumer consumer = consumer(namesrv);
        AtomicLong count = new AtomicLong();
        ConcurrentLinkedQueue<Sent> sent = new ConcurrentLinkedQueue<>();
        List<Double> pulls = new ArrayList<>();
        List<Double> ids = new ArrayList<>();
        List<Double> keys = new ArrayList<>();
        AtomicInteger missed = new AtomicInteger();
        long begin = System.nanoTime();
        String prefix = Long.toString(begin, Character.MAX_RADIX) + "-";
        inThreads(threads + 1, number -> {
            if (number < threads) {
                while (seconds(begin) < seconds) {
                    long one = count.incrementAndGet();
                    String key = prefix + one;
                    SendResult result = producer.send(new Message(topic, "TagA", key, new byte[300]));
                    if (one % 100 == 0) {
                        sent.add(new Sent(key, result));
                    }
                }
                return;
            }
            while (seconds(begin) < seconds) {
                TimeUnit.MILLISECONDS.sleep(5);
                Sent one = sent.poll();
                // queues and index are behind the log a little, on both sides
                while (one != null && seconds(one.at) > 2) {
                    one = sent.poll();
                }
                if (one == null) {
                    continue;
                }
                while (seconds(one.at) < 0.5) {
                    TimeUnit.MILLISECONDS.sleep(5);
                }
                Sent looked = one;
                ids.add(timed(missed, () -> consumer.viewMessage(topic, looked.result.getOffsetMsgId()) != null));
                long now = System.currentTimeMillis();
                keys.add(timed(missed, () -> !consumer.queryMessage(topic, looked.key, 1, now - 60_000, now)
                    .getMessageList().isEmpty()));
                pulls.add(timed(missed, () -> consumer.pull(looked.result.getMessageQueue(), "*",
                    looked.result.getQueueOffset(), AT_ONCE).getMsgFoundList() != null));
            }
        });
        return String.format(Locale.ROOT, "{\"sent\": %d, \"seconds\": %.6f, \"missed\": %d, %s, %s, %s}", count.get(),
            seconds(begin), missed.get(), spread("id", array(ids)), spread("key", array(keys)),
            spread("pull", array(pulls)));
    }

    private static double timed(AtomicInteger missed, Callable<Boolean> work) throws Exception {
        long begin = System.nanoTime();
        boolean isFound;
        try {
            isFound = work.call();
        } catch (MQClientException nothing) {
            isFound = false;
        }
        if (!isFound) {
            missed.incrementAndGet();
        }
        return seconds(begin);
    }

    private static double[] array(List<Double> times) {
        return times.stream().mapToDouble(Double::doubleValue).toArray();
    }

    private static String spread(String name, double[] times) {
        Arrays.sort(times);
        return String.format(Locale.ROOT, "\"%s_n\": %d, \"%s_p50\": %.6f, \"%s_p99\": %.6f, \"%s_max\": %.6f", name,
            times.length, name, at(times, 0.5), name, at(times, 0.99), name, at(times, 1));
    }

    private static double at(double[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[Math.min(sorted.length - 1, (int) (sorted.length * share))];
    }

    /** Connections as consumers have them: one thread, because so many real clients would need so many JVMs. */
    private static final class Idle implements Runnable {
        private final String topic;
        private final Selector selector = Selector.open();
        private final List<SocketChannel> channels = new ArrayList<>();
        private final Thread thread = new Thread(this, "idle");
        private final AtomicInteger refused = new AtomicInteger();

        Idle(String broker, String topic, int count) throws Exception {
            this.topic = topic;
            int colon = broker.lastIndexOf(':');
            InetSocketAddress address =
                new InetSocketAddress(broker.substring(0, colon), Integer.parseInt(broker.substring(colon + 1)));
            for (int i = 0; i < count; i++) {
                SocketChannel channel = SocketChannel.open(address);
                channel.socket().setTcpNoDelay(true);
                channels.add(channel);
                write(channel, heartbeat(i));
                write(channel, pull(i));
                channel.configureBlocking(false);
                channel.register(selector, SelectionKey.OP_READ, new Peer(i));
            }
            thread.start();
        }

        String held() throws Exception {
            TimeUnit.SECONDS.sleep(1);
            return String.format("{\"connections\": %d, \"refused\": %d}", channels.size(), refused.get());
        }

        void leave() throws Exception {
            thread.interrupt();
            thread.join();
            for (SocketChannel channel : channels) {
                channel.close();
            }
        }

        private static final class Peer {
            final int number;
            final ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
            long heartbeat;

            Peer(int number) {
                this.number = number;
                // not all of them at once
                this.heartbeat = System.currentTimeMillis() + number * 29L % HEARTBEAT_MS;
            }
        }

        @Override
        public void run() {
            try {
                while (!Thread.interrupted()) {
                    selector.select(100);
                    for (SelectionKey key : selector.selectedKeys()) {
                        read(key);
                    }
                    selector.selectedKeys().clear();
                    for (SelectionKey key : selector.keys()) {
                        Peer peer = (Peer) key.attachment();
                        if (key.isValid() && System.currentTimeMillis() > peer.heartbeat) {
                            peer.heartbeat += HEARTBEAT_MS;
                            write((SocketChannel) key.channel(), heartbeat(peer.number));
                        }
                    }
                }
            } catch (Exception problem) {
                problem.printStackTrace();
            }
        }

        private void read(SelectionKey key) throws Exception {
            SocketChannel channel = (SocketChannel) key.channel();
            ByteBuffer buffer = ((Peer) key.attachment()).buffer;
            if (channel.read(buffer) < 0) {
                refused.incrementAndGet();
                key.cancel();
                return;
            }
            buffer.flip();
            while (buffer.remaining() >= 4 && buffer.remaining() >= 4 + buffer.getInt(buffer.position())) {
                byte[] frame = new byte[buffer.getInt()];
                buffer.get(frame);
                RemotingCommand command = RemotingCommand.decode(ByteBuffer.wrap(frame));
                // whatever the answer to a pull is, a consumer pulls again; heartbeats have another number
                if (command.isResponseType() && command.getExtFields() != null
                    && command.getExtFields().containsKey("nextBeginOffset")) {
                    write(channel, pull(((Peer) key.attachment()).number));
                }
            }
            buffer.compact();
        }

        private static void write(SocketChannel channel, RemotingCommand command) throws Exception {
            ByteBuffer bytes = command.encode();
            while (bytes.hasRemaining()) {
                channel.write(bytes);
            }
        }

        private static RemotingCommand heartbeat(int number) {
            ConsumerData consumer = new ConsumerData();
            consumer.setGroupName(group(number));
            consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
            consumer.setMessageModel(MessageModel.CLUSTERING);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
            HeartbeatData data = new HeartbeatData();
            data.setClientID("127.0.0.1@idle-" + number);
            data.getConsumerDataSet().add(consumer);
            RemotingCommand command = RemotingCommand.createRequestCommand(RequestCode.HEART_BEAT, null);
            command.setBody(data.encode());
            return command;
        }

        /** Ten consumers each: all members of a group are told of every new one. */
        private static String group(int number) {
            return "bench-idle-" + number / 10;
        }

        private RemotingCommand pull(int number) {
            PullMessageRequestHeader header = new PullMessageRequestHeader();
            header.setConsumerGroup(group(number));
            header.setTopic(topic);
            header.setQueueId(0);
            header.setQueueOffset(0L);
            header.setMaxMsgNums(AT_ONCE);
            header.setSysFlag(PullSysFlag.buildSysFlag(false, true, true, false));
            header.setCommitOffset(0L);
            header.setSuspendTimeoutMillis(SUSPEND_MS);
            header.setSubscription("*");
            header.setSubVersion(0L);
            header.setExpressionType(ExpressionType.TAG);
            RemotingCommand command = RemotingCommand.createRequestCommand(RequestCode.PULL_MESSAGE, header);
            return command;
        }
    }
}
