import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Exactly once, as exactly_once.py does it, with the Java client.
 *
 * <pre>java -cp "$KAFKA_HOME/libs/*" ExactlyOnce.java localhost:9092 flights flight-delays delays one</pre>
 *
 * Arguments: servers, the topics to read and to write, the group, and a name for this process that
 * stays across restarts. The topics have to be there.
 */
public final class ExactlyOnce {
    private static volatile boolean isEnding = false;

    public static void main(String[] arguments) {
        String bootstrap = arguments[0];
        String input = arguments[1];
        String output = arguments[2];
        String group = arguments[3];
        String name = arguments[4];
        endOnSignal(Thread.currentThread());
        Map<String, Object> reading = new HashMap<>();
        reading.put("bootstrap.servers", bootstrap);
        reading.put("group.id", group);
        reading.put("group.instance.id", name);
        reading.put("enable.auto.commit", false); // the transaction commits
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed"); // not the default of this client
        Map<String, Object> writing = new HashMap<>();
        writing.put("bootstrap.servers", bootstrap);
        // The same after a restart: what a killed process had open is aborted at once.
        writing.put("transactional.id", group + "-" + name);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                        reading, new StringDeserializer(), new StringDeserializer());
                KafkaProducer<String, String> producer = new KafkaProducer<>(
                        writing, new StringSerializer(), new StringSerializer())) {
            untilAnswered(producer::initTransactions);
            consumer.subscribe(List.of(input));
            while (!isEnding) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (!records.isEmpty() && !carryOver(consumer, producer, output, records)) {
                    goBack(consumer, records);
                }
            }
        }
    }

    /** Writes results and offsets, or nothing. Any other exception ends this process. */
    private static boolean carryOver(
            KafkaConsumer<String, String> consumer,
            KafkaProducer<String, String> producer,
            String output,
            ConsumerRecords<String, String> records) {
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> after = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(output, record.key(), delayOf(record)));
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                after.put(place, new OffsetAndMetadata(record.offset() + 1));
            }
            // The group refuses where our partitions are somebody else's by now.
            untilAnswered(() -> producer.sendOffsetsToTransaction(after, consumer.groupMetadata()));
            untilAnswered(producer::commitTransaction);
            return true;
        } catch (KafkaException failure) {
            // Throws where the producer cannot go on: another process has our name.
            untilAnswered(producer::abortTransaction);
            System.err.println(records.count() + " flights aborted: " + failure);
            return false;
        }
    }

    /** The work: what becomes of one flight. */
    private static String delayOf(ConsumerRecord<String, String> record) {
        String minutes = field(record.value(), "dep_delay");
        String flight = field(record.value(), "carrier").replace("\"", "");
        return String.format(
                "{\"flight\": \"%s %s\", \"minutes\": %s, \"from\": [%d, %d]}",
                flight, field(record.value(), "flight"), minutes,
                record.partition(), record.offset());
    }

    /** One field of a flat JSON object; a program of yours has a library for it. */
    private static String field(String json, String name) {
        int from = json.indexOf(':', json.indexOf("\"" + name + "\"")) + 1;
        int comma = json.indexOf(',', from);
        return json.substring(from, comma < 0 ? json.indexOf('}', from) : comma).trim();
    }

    /** To what is committed: the flights of an aborted transaction come again. */
    private static void goBack(
            KafkaConsumer<String, String> consumer, ConsumerRecords<String, String> records) {
        consumer.committed(records.partitions()).forEach((partition, at) -> {
            if (!consumer.assignment().contains(partition)) {
                return; // taken from us meanwhile
            }
            if (at == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, at.offset());
            }
        });
    }

    /** Calls again while the answer is only late: what was asked for is the same one. */
    private static void untilAnswered(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException late) {
                System.err.println("asking again: " + late.getMessage());
            }
        }
    }

    /** Ctrl-C and SIGTERM end the loop, and wait until its clients are closed. */
    private static void endOnSignal(Thread loop) {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            isEnding = true;
            try {
                loop.join();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
    }
}
