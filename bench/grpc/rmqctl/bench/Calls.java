package rmqctl.bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * RocketMQ's gRPC clients, which measure proxies: one request a line on standard input, one JSON object a line as the answer.
 *
 * send HOST:PORT TOPIC CLIENTS COUNT BODY        synchronous sends of so many producers
 * receive HOST:PORT GROUP TOPIC CLIENTS COUNT    32 messages a call, by so many consumers, which keep their handles
 * ack                                            acknowledge what was received, a call each
 *
 * Times are in seconds.
 */
public final class Calls {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final int AT_ONCE = 32;
    private static final long LIMIT_S = 600;
    private static final Map<String, Producer> PRODUCERS = new HashMap<>();
    private static final Map<String, SimpleConsumer> CONSUMERS = new HashMap<>();
    private static final List<Received> RECEIVED = new ArrayList<>();

    private Calls() {
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
            case "send":
                return send(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]), Integer.parseInt(words[5]));
            case "receive":
                return receive(words[1], words[2], words[3], Integer.parseInt(words[4]), Integer.parseInt(words[5]));
            case "ack":
                return acknowledge();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static final class Received {
        final SimpleConsumer consumer;
        final List<MessageView> messages = new ArrayList<>();

        Received(SimpleConsumer consumer) {
            this.consumer = consumer;
        }
    }

    private interface Work {
        void run(int number) throws Exception;
    }

    private static double inThreads(int threads, Work work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<Void>> running = new ArrayList<>();
        long begin = System.nanoTime();
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
        return (System.nanoTime() - begin) / 1e9;
    }

    private static String told(int messages, double seconds) {
        return String.format(Locale.ROOT, "{\"messages\": %d, \"seconds\": %.6f}", messages, seconds);
    }

    private static ClientConfiguration at(String endpoint) {
        return ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false).setRequestTimeout(Duration.ofSeconds(30)).build();
    }

    private static Producer producer(String endpoint, String topic, int number) throws Exception {
        String name = endpoint + " " + topic + " " + number;
        if (!PRODUCERS.containsKey(name)) {
            PRODUCERS.put(name, PROVIDER.newProducerBuilder().setClientConfiguration(at(endpoint)).setTopics(topic).build());
        }
        return PRODUCERS.get(name);
    }

    private static String send(String endpoint, String topic, int clients, int count, int size) throws Exception {
        List<Producer> producers = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            producers.add(producer(endpoint, topic, i));
        }
        AtomicInteger left = new AtomicInteger(count);
        return told(count, inThreads(clients, number -> {
            byte[] body = new byte[size];
            while (left.getAndDecrement() > 0) {
                producers.get(number).send(PROVIDER.newMessageBuilder().setTopic(topic).setTag("TagA").setBody(body).build());
            }
        }));
    }

    private static SimpleConsumer consumer(String endpoint, String group, String topic, int number) throws Exception {
        String name = endpoint + " " + group + " " + number;
        if (!CONSUMERS.containsKey(name)) {
            CONSUMERS.put(name, PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(at(endpoint)).setConsumerGroup(group)
                .setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build());
        }
        return CONSUMERS.get(name);
    }

    private static String receive(String endpoint, String group, String topic, int clients, int count) throws Exception {
        RECEIVED.clear();
        for (int i = 0; i < clients; i++) {
            RECEIVED.add(new Received(consumer(endpoint, group, topic, i)));
        }
        AtomicInteger left = new AtomicInteger(count);
        double seconds = inThreads(clients, number -> {
            Received own = RECEIVED.get(number);
            while (left.get() > 0) {
                List<MessageView> found = own.consumer.receive(AT_ONCE, Duration.ofMinutes(10));
                own.messages.addAll(found);
                left.addAndGet(-found.size());
            }
        });
        return told(count - left.get(), seconds);
    }

    private static String acknowledge() throws Exception {
        int count = RECEIVED.stream().mapToInt(one -> one.messages.size()).sum();
        return told(count, inThreads(RECEIVED.size(), number -> {
            Received own = RECEIVED.get(number);
            for (MessageView one : own.messages) {
                own.consumer.ack(one);
            }
        }));
    }
}
