"""Which clients are tried, and on which settings of a broker."""

# Tests wait for no member that might still come, and need not wait long for one that died.
GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    # A transaction whose time is out is aborted soon after. It lies on one broker here.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "5",
    # Compacted topics need not wait for the next look.
    "log.cleaner.backoff.ms": "100",
    # An empty group without offsets lives as long as a test.
    "offsets.retention.check.interval.ms": "86400000",
}
CLIENT_NAMES = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "Java console")
