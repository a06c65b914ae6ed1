import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.HashSet;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import java.util.zip.CRC32;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Consume, transform, produce with Apache Flink: its offsets are in checkpoints of its own, and each
 * checkpoint commits a transaction, by a producer that was given up before and is taken up again.
 *
 * <p>Each instance is a job of its own with half of the input's partitions, and each names its
 * transactions in another of Flink's ways. One that starts again begins at its last checkpoint.
 *
 * <p>Arguments: bootstrap servers, input topic, output topic, group, name, folder for checkpoints.
 */
public final class CopyByFlink {
    private static final int PARTITIONS = 3;
    private static final int DOOMED_EACH = 7;
    private static final long STOP_TIMEOUT_S = 30;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String name = arguments[4];
        Path folder = Path.of(arguments[5]);
        boolean isFirst = name.endsWith("-0");
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(1, configure(folder));
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(bootstrap)
                .setPartitions(partitions(arguments[1], isFirst))
                .setGroupId(arguments[3])
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setDeserializer(new Reading())
                .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(bootstrap)
                .setRecordSerializer(writing(arguments[2]))
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(name)
                .setTransactionNamingStrategy(
                        isFirst
                                ? TransactionNamingStrategy.INCREMENTING
                                : TransactionNamingStrategy.POOLING)
                .setProperty("transaction.timeout.ms", "60000")
                .build();
        environment
                .fromSource(source, WatermarkStrategy.noWatermarks(), "input")
                .uid("input")
                .process(new Transform())
                .uid("transform")
                .sinkTo(sink)
                .uid("output");
        JobClient job = environment.executeAsync(name);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(job, folder)));
        job.getJobExecutionResult().get();
    }

    private static Configuration configure(Path folder) throws Exception {
        Configuration configuration = new Configuration();
        String checkpoints = folder.resolve("checkpoints").toUri().toString();
        configuration.setString("execution.checkpointing.interval", "200ms");
        configuration.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        configuration.setString("execution.checkpointing.dir", checkpoints);
        configuration.setString(
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION");
        configuration.setString("restart-strategy.type", "fixed-delay");
        configuration.setString("restart-strategy.fixed-delay.attempts", "1000000");
        configuration.setString("restart-strategy.fixed-delay.delay", "100ms");
        configuration.setString("taskmanager.memory.network.min", "16m");
        configuration.setString("taskmanager.memory.network.max", "16m");
        configuration.setString("taskmanager.memory.managed.size", "16m");
        lastCheckpoint(folder)
                .ifPresent(it -> configuration.setString("execution.state-recovery.path", it));
        return configuration;
    }

    /** The newest one that is whole, of whichever process. */
    private static Optional<String> lastCheckpoint(Path folder) throws Exception {
        if (!Files.isDirectory(folder)) {
            return Optional.empty();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            return files.filter(file -> file.endsWith("_metadata"))
                    .map(Path::toFile)
                    .max(Comparator.comparingLong(File::lastModified))
                    .map(file -> file.getParentFile().toURI().toString());
        }
    }

    private static Set<TopicPartition> partitions(String topic, boolean isFirst) {
        Set<TopicPartition> chosen = new HashSet<>();
        for (int index = isFirst ? 0 : 1; index < PARTITIONS; index += 2) {
            chosen.add(new TopicPartition(topic, index));
        }
        return chosen;
    }

    /** With all that was read written, committed, and the offsets told to the group. */
    private static void stop(JobClient job, Path folder) {
        try {
            String savepoints = folder.resolve("savepoints").toUri().toString();
            job.stopWithSavepoint(false, savepoints, SavepointFormatType.CANONICAL)
                    .get(STOP_TIMEOUT_S, TimeUnit.SECONDS);
        } catch (Exception error) {
            System.out.println("not stopped: " + error);
        }
    }

    private static final class Reading implements KafkaRecordDeserializationSchema<String> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> out) {
            out.collect(text(record.key()) + "=" + text(record.value()));
        }

        @Override
        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }

    private static KafkaRecordSerializationSchema<String> writing(String topic) {
        return KafkaRecordSerializationSchema.<String>builder()
                .setTopic(topic)
                .setKeySerializationSchema(new Key())
                .setValueSerializationSchema(new Value())
                .build();
    }

    // Flink reads the types of classes, and finds none in lambdas.
    private static final class Key implements SerializationSchema<String> {
        @Override
        public byte[] serialize(String element) {
            return bytes(element.substring(0, element.indexOf('=')));
        }
    }

    private static final class Value implements SerializationSchema<String> {
        @Override
        public byte[] serialize(String element) {
            return bytes(element.substring(element.indexOf('=') + 1));
        }
    }

    /** Dooms a checkpoint now and then: its transaction is flushed and ready by then. */
    private static final class Transform extends ProcessFunction<String, String>
            implements CheckpointedFunction {
        private transient Random chance;
        private transient boolean isDoomed;

        @Override
        public void initializeState(FunctionInitializationContext context) {
            chance = new Random();
            isDoomed = chance.nextInt(DOOMED_EACH) == 0;
        }

        @Override
        public void processElement(String element, Context context, Collector<String> out) {
            int at = element.indexOf('=');
            String value = element.substring(at + 1);
            CRC32 crc = new CRC32();
            crc.update(bytes(value));
            String copy = value.split(" ")[0] + String.format(" %08x", crc.getValue());
            out.collect(element.substring(0, at + 1) + (isDoomed ? "doomed " : "") + copy);
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {
            if (isDoomed) {
                throw new IllegalStateException("doomed");
            }
            isDoomed = chance.nextInt(DOOMED_EACH) == 0;
        }
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
