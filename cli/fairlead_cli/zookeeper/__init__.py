"""The data of a Kafka with metadata in ZooKeeper: read here and, for positions, written."""
