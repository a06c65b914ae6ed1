import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java producer's part in the failover load: the same records and the same lines of output as
 * benchmarks/fairlead_bench/loads/failover_load.py, which says what they mean. Default settings.
 *
 * <p>Arguments: name, topic, bootstrap servers, partitions, records a second, bytes of a value.
 */
public final class FailoverLoad {
    private static final long NS_PER_S = 1_000_000_000L;

    private static volatile boolean isEnded = false;

    public static void main(String[] arguments) throws Exception {
        String name = arguments[0];
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[3]);
        long intervalNs = NS_PER_S / Integer.parseInt(arguments[4]);
        int valueBytes = Integer.parseInt(arguments[5]);
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[2]);
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        long[] sentCounts = new long[partitions];
        followInput();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            long dueNs = System.nanoTime();
            for (int at = 0; ; at = (at + 1) % partitions) {
                int partition = at;
                waitUntil(dueNs);
                if (isEnded) {
                    break;
                }
                long sequence = sentCounts[partition]++;
                String key = name + "-" + partition;
                byte[] value = encode(key, sequence, valueBytes);
                long handedOverNs = System.nanoTime();
                producer.send(
                        new ProducerRecord<>(topic, partition, key.getBytes(), value),
                        (metadata, error) -> {
                            if (error == null) {
                                tell("acknowledged " + partition + " " + sequence + " " + handedOverNs
                                        + " " + System.nanoTime() + " " + metadata.offset());
                            } else {
                                String why = error.toString().replace('\n', ' ');
                                tell("failed " + partition + " " + sequence + " " + why);
                            }
                        });
                dueNs = Math.max(dueNs + intervalNs, System.nanoTime());
            }
        }
        for (int partition = 0; partition < partitions; partition++) {
            tell("sent " + partition + " " + sentCounts[partition]);
        }
    }

    /** From here on the end of standard input ends the program. */
    private static void followInput() {
        Thread follower = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // Nothing is expected but the end.
                }
            } catch (java.io.IOException error) {
                System.err.println(error);
            }
            isEnded = true;
        });
        follower.setDaemon(true);
        follower.start();
    }

    private static void waitUntil(long dueNs) {
        for (long leftNs = dueNs - System.nanoTime(); leftNs > 0; leftNs = dueNs - System.nanoTime()) {
            LockSupport.parkNanos(leftNs);
        }
    }

    /** A value that names itself, filled up with dots, as the drills' checker wants it. */
    private static byte[] encode(String key, long sequence, int size) {
        byte[] start = (key + ":" + sequence + ":").getBytes();
        byte[] value = new byte[Math.max(size, start.length)];
        Arrays.fill(value, (byte) '.');
        System.arraycopy(start, 0, value, 0, start.length);
        return value;
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
    }
}
