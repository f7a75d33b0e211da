package rmqctl.interop;

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Drives the real store of RocketMQ.
 *   open THREADS {DIR PROPS OUT}...   load, start, drain, read, shut down each store, THREADS of them at a time
 *   write THREADS {DIR PROPS OUT}...  load, start, write, then shut down each store, or halt the JVM
 *   replica DIR PROPS                 a master or a slave that is told what to do, see Replica
 * OUT gets JSON lines and appears only when it is complete. Exit status 0: every OUT is there, whatever it says.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) {
        Version.logToStandardError();
        int status = 0;
        try {
            if (arguments[0].equals("open")) {
                each(arguments, (settings, out) -> write(out, Reader.view(settings)));
            } else if (arguments[0].equals("write")) {
                each(arguments, Writer::run);
            } else if (arguments[0].equals("replica")) {
                Replica.run(new Settings(arguments[1], arguments[2]));
            } else {
                throw new IllegalArgumentException(arguments[0]);
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
            status = 1;
        }
        // the threads of a store that failed half-way would keep the JVM alive
        System.exit(status);
    }

    private interface Work {
        void with(Settings settings, Path out) throws Exception;
    }

    private static void each(String[] arguments, Work work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(Integer.parseInt(arguments[1]));
        List<Future<?>> jobs = new ArrayList<>();
        for (int i = 2; i + 2 < arguments.length; i += 3) {
            Settings settings = new Settings(arguments[i], arguments[i + 1]);
            Path out = Paths.get(arguments[i + 2]);
            jobs.add(pool.submit(() -> {
                work.with(settings, out);
                return null;
            }));
        }
        for (Future<?> job : jobs) {
            job.get();
        }
    }

    static void write(Path out, List<?> lines) throws Exception {
        Path unfinished = out.resolveSibling(out.getFileName() + ".unfinished");
        try (BufferedWriter writer = Files.newBufferedWriter(unfinished, StandardCharsets.US_ASCII)) {
            for (Object line : lines) {
                writer.write(Json.of(line));
                writer.write('\n');
            }
        }
        Files.move(unfinished, out, StandardCopyOption.ATOMIC_MOVE);
    }

    /**
     * Waits until queues and index have caught up with the commitlog; false if they did not in time, or if the follower
     * stands beyond the commitlog's end, where 4.x puts it for a queue unit pointing there: it then follows nothing.
     */
    static boolean drain(DefaultMessageStore store, int seconds) throws InterruptedException {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        int caughtUp = 0;
        int beyond = 0;
        while (caughtUp < 5 && beyond < 50 && System.nanoTime() < end) {
            long behind = store.dispatchBehindBytes();
            caughtUp = behind == 0 ? caughtUp + 1 : 0;
            beyond = behind < 0 ? beyond + 1 : 0;
            Thread.sleep(10);
        }
        return caughtUp == 5;
    }
}
