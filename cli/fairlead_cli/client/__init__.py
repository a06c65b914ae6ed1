"""Talking to a cluster as any Kafka application does, with confluent-kafka."""
