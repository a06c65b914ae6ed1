/** Prints records of groups of KIP-848 as Kafka writes them: kafka_consumer_group_records.py runs it. */
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.*;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.server.common.ApiMessageAndVersion;
public class KafkaConsumerGroupRecords {
  static String hex(byte[] b){ return b==null?"null":HexFormat.of().formatHex(b);}
  static void show(String n, ApiMessage k, ApiMessage v) {
    var r = CoordinatorRecord.record(k, new ApiMessageAndVersion(v,(short)0));
    var s = new GroupCoordinatorRecordSerde();
    System.out.println(n + "=" + hex(s.serializeKey(r)) + "," + hex(s.serializeValue(r)));
  }
  public static void main(String[] a) {
    Uuid one = new Uuid(1L, 2L), two = new Uuid(3L, 4L);
    show("epoch", new ConsumerGroupMetadataKey().setGroupId("g"), new ConsumerGroupMetadataValue().setEpoch(7));
    show("epoch with hash", new ConsumerGroupMetadataKey().setGroupId("g"), new ConsumerGroupMetadataValue().setEpoch(7).setMetadataHash(-5L));
    show("member", new ConsumerGroupMemberMetadataKey().setGroupId("g").setMemberId("m"), new ConsumerGroupMemberMetadataValue()
      .setInstanceId("i").setRackId("r").setClientId("c").setClientHost("/h").setSubscribedTopicNames(List.of("a","b")).setSubscribedTopicRegex("x.*").setRebalanceTimeoutMs(300000).setServerAssignor("range"));
    show("classic member", new ConsumerGroupMemberMetadataKey().setGroupId("g").setMemberId("m"), new ConsumerGroupMemberMetadataValue()
      .setInstanceId(null).setRackId(null).setServerAssignor(null).setSubscribedTopicRegex("").setClientId("c").setClientHost("/h").setSubscribedTopicNames(List.of()).setRebalanceTimeoutMs(5)
      .setClassicMemberMetadata(new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata().setSessionTimeoutMs(45000).setSupportedProtocols(List.of(
         new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("range").setMetadata(new byte[]{1,2,3}), new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("sticky").setMetadata(new byte[0])))));
    show("member without pattern", new ConsumerGroupMemberMetadataKey().setGroupId("g").setMemberId("m"), new ConsumerGroupMemberMetadataValue().setInstanceId(null).setRackId(null).setServerAssignor(null).setSubscribedTopicRegex("").setClientId("c").setClientHost("/h").setSubscribedTopicNames(List.of("a","b")).setRebalanceTimeoutMs(5));
    show("away before KIP-1251", new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m"), new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(-2).setPreviousMemberEpoch(4).setState((byte)0)
      .setAssignedPartitions(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(one).setPartitions(List.of(0,2))))
      .setPartitionsPendingRevocation(List.of()));
    show("target epoch", new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("g"), new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(9));
    show("target epoch with timestamp", new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("g"), new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(9).setAssignmentTimestamp(1700000000000L));
    show("target", new ConsumerGroupTargetAssignmentMemberKey().setGroupId("g").setMemberId("m"), new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(
       new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(one).setPartitions(List.of(0,2)), new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(two).setPartitions(List.of(1)))));
    show("current", new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m"), new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(5).setPreviousMemberEpoch(4).setState((byte)1)
      .setAssignedPartitions(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(one).setPartitions(List.of(0,2)).setAssignmentEpochs(List.of(3,5))))
      .setPartitionsPendingRevocation(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(two).setPartitions(List.of(1)).setAssignmentEpochs(List.of(2)))));
    show("current before KIP-1251", new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m"), new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(5).setPreviousMemberEpoch(4).setState((byte)2)
      .setAssignedPartitions(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(one).setPartitions(List.of(0,2))))
      .setPartitionsPendingRevocation(List.of()));
    show("regular expression", new ConsumerGroupRegularExpressionKey().setGroupId("g").setRegularExpression("x.*"), new ConsumerGroupRegularExpressionValue().setTopics(List.of("x1","x2")).setVersion(12).setTimestamp(1700000000000L));
    show("partition metadata", new ConsumerGroupPartitionMetadataKey().setGroupId("g"), new ConsumerGroupPartitionMetadataValue().setTopics(List.of()));
  }
}
