"""What a Kafka that kept its metadata in ZooKeeper left there, read and, for positions, written."""
