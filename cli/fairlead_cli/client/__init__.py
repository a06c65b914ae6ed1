"""Clients of a cluster, as any Kafka application has them, with confluent-kafka."""
