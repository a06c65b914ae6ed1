import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's own log and its cleaner, one command a line, answered with one line.
 *
 * open DIRECTORY KEY=VALUE…   begins an empty log with these settings of a topic
 * append HEX                  batches as a follower gets them
 * roll                        begins another segment
 * clean NOW                   cleans once, at this time in ms; answers up to where the log is clean now, or "-"
 * dump                        answers what is left: a batch is BASE,LAST,PRODUCER,EPOCH,SEQUENCE,KIND,HORIZON
 *                             and behind it OFFSET=TIMESTAMP=KEY=VALUE for each record, in hex, "-" for none
 */
public final class KafkaCleaner {
    private static final int MAP_BYTES = 1 << 20;
    private static final int IO_BYTES = 1 << 20;
    private static final double LOAD_FACTOR = 0.9;
    private static final int EPOCH = 0;

    private final ManualTime time = new ManualTime();
    private UnifiedLog log;
    private Optional<Long> cleanUpTo = Optional.empty();

    public static void main(String[] arguments) throws Exception {
        KafkaCleaner cleaner = new KafkaCleaner();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(cleaner.answer(line.split(" ")));
            System.out.flush();
        }
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                return open(words);
            case "append":
                return append(HexFormat.of().parseHex(words[1]));
            case "roll":
                log.roll();
                return "rolled";
            case "clean":
                return clean(Long.parseLong(words[1]));
            case "dump":
                return dump();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String open(String[] words) throws Exception {
        if (log != null) {
            log.closeHandlers();
        }
        cleanUpTo = Optional.empty();
        Properties settings = new Properties();
        for (int at = 2; at < words.length; at++) {
            String[] setting = words[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        File directory = new File(words[1], "t-0");
        directory.mkdirs();
        log = UnifiedLog.create(directory, new LogConfig(settings), 0, 0, new NothingScheduled(),
            new BrokerTopicStats(), time, Integer.MAX_VALUE, new ProducerStateManagerConfig(Integer.MAX_VALUE, false),
            Integer.MAX_VALUE, new LogDirFailureChannel(1), true, Optional.of(Uuid.randomUuid()));
        return "opened";
    }

    private String append(byte[] batches) throws Exception {
        log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(batches)), EPOCH);
        log.updateHighWatermark(log.logEndOffset());
        return Long.toString(log.lastStableOffset());
    }

    private String clean(long now) throws Exception {
        time.now = now;
        Method cleanable = LogCleanerManager.class.getDeclaredMethod(
            "cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        cleanable.setAccessible(true);
        Object range = cleanable.invoke(null, log, cleanUpTo, now);
        long from = offset(range, "firstDirtyOffset");
        long to = offset(range, "firstUncleanableDirtyOffset");
        if (to <= from) {
            return "-";
        }
        Throttler unlimited = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "none", "entries", time);
        Cleaner cleaner = new Cleaner(
            0, new SkimpyOffsetMap(MAP_BYTES), IO_BYTES, IO_BYTES, LOAD_FACTOR, unlimited, time, partition -> { });
        Map.Entry<Long, ?> done = cleaner.doClean(new LogToClean(log, from, to, false), now);
        if (done.getKey() <= from) {
            return "-";
        }
        cleanUpTo = Optional.of(done.getKey());
        return done.getKey().toString();
    }

    private static long offset(Object range, String name) throws Exception {
        Method accessor = range.getClass().getDeclaredMethod(name);
        accessor.setAccessible(true);
        return (long) accessor.invoke(range);
    }

    private String dump() throws Exception {
        StringBuilder text = new StringBuilder();
        for (LogSegment segment : log.logSegments()) {
            for (FileLogInputStream.FileChannelRecordBatch batch : segment.log().batches()) {
                text.append(batch.baseOffset()).append(',').append(batch.lastOffset()).append(',')
                    .append(batch.producerId()).append(',').append(batch.producerEpoch()).append(',')
                    .append(batch.baseSequence()).append(',').append(kind(batch)).append(',')
                    .append(batch.deleteHorizonMs().orElse(-1));
                for (Record record : batch) {
                    text.append(';').append(record.offset()).append('=').append(record.timestamp()).append('=')
                        .append(hex(record.key())).append('=').append(hex(record.value()));
                }
                text.append(' ');
            }
        }
        return text.toString().trim();
    }

    private static String kind(RecordBatch batch) {
        return (batch.isTransactional() ? "t" : "n") + (batch.isControlBatch() ? "c" : "d")
            + batch.compressionType().id;
    }

    private static String hex(ByteBuffer content) {
        if (content == null) {
            return "-";
        }
        byte[] bytes = new byte[content.remaining()];
        content.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    /** The time that the last command named. */
    private static final class ManualTime implements Time {
        private long now = 0;

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            now += ms;
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }

    /** Files that a cleaning has replaced stay where they are. */
    private static final class NothingScheduled implements Scheduler {
        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        @Override
        public void resizeThreadPool(int size) { }
    }
}
