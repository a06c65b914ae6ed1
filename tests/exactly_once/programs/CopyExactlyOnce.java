import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Consume, transform, produce with the Java client: what copy_confluent.py, which says more, does
 * with another.
 *
 * <p>Arguments: bootstrap servers, input topic, output topic, group, transactional id.
 */
public final class CopyExactlyOnce {
    private static final int DOOMED_EACH = 7;
    private static final int MUST_START_ANEW = 3;

    private static volatile boolean isEnding = false;

    public static void main(String[] arguments) throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            isEnding = true;
            try {
                main.join();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            run(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
        } catch (KafkaException error) {
            System.out.println("must start anew: " + error);
            Runtime.getRuntime().halt(MUST_START_ANEW);
        }
    }

    private static void run(
            String bootstrap, String input, String output, String group, String name) {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                Map.of(
                        "bootstrap.servers", bootstrap,
                        "group.id", group,
                        "enable.auto.commit", false,
                        "auto.offset.reset", "earliest",
                        "isolation.level", "read_committed",
                        "session.timeout.ms", 4000,
                        "heartbeat.interval.ms", 500,
                        "max.poll.records", 200),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer());
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                Map.of(
                        "bootstrap.servers", bootstrap,
                        "transactional.id", name,
                        "transaction.timeout.ms", 10_000),
                new ByteArraySerializer(),
                new ByteArraySerializer());
        retry(producer::initTransactions);
        consumer.subscribe(List.of(input));
        for (int count = 1; !isEnding; ) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            if (records.isEmpty()) {
                continue;
            }
            if (!carryOver(consumer, producer, output, records, count++ % DOOMED_EACH == 0)) {
                rewind(consumer, records);
            }
        }
        producer.close(Duration.ofSeconds(10));
        consumer.close();
    }

    private static boolean carryOver(
            KafkaConsumer<byte[], byte[]> consumer,
            KafkaProducer<byte[], byte[]> producer,
            String output,
            ConsumerRecords<byte[], byte[]> records,
            boolean doomed) {
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> reached = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                byte[] value = ((doomed ? "doomed " : "") + transform(record.value())).getBytes();
                producer.send(new ProducerRecord<>(output, record.key(), value));
                reached.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            if (doomed) {
                producer.flush();
                retry(producer::abortTransaction);
                return false;
            }
            retry(() -> producer.sendOffsetsToTransaction(reached, consumer.groupMetadata()));
            retry(producer::commitTransaction);
            return true;
        } catch (KafkaException error) {
            // Throws another one where this producer cannot go on.
            retry(producer::abortTransaction);
            System.out.println("aborted: " + error);
            return false;
        }
    }

    private static String transform(byte[] value) {
        CRC32 crc = new CRC32();
        crc.update(value);
        return new String(value).split(" ")[0] + String.format(" %08x", crc.getValue());
    }

    /** Again while the answer is only late: the outcome is the same one. */
    private static void retry(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException late) {
                System.out.println("late: " + late.getMessage());
            }
        }
    }

    /** To what is committed: the aborted transaction's input is read again. */
    private static void rewind(
            KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(records.partitions());
        committed.forEach((partition, at) -> {
            // It may have been taken away meanwhile.
            if (consumer.assignment().contains(partition)) {
                if (at == null) {
                    consumer.seekToBeginning(List.of(partition));
                } else {
                    consumer.seek(partition, at.offset());
                }
            }
        });
    }
}
