import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.LogDirDescription;

/** Prints the log directories of a broker, and whether each is cordoned, as Kafka's client reads it. */
public final class KafkaCordonedDirectories {
    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            int broker = Integer.parseInt(arguments[1]);
            Map<String, LogDirDescription> found =
                    admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker);
            new TreeMap<>(found).forEach((path, each) ->
                    System.out.println(path + " " + each.isCordoned() + " " + (each.error() == null)));
        }
    }
}
