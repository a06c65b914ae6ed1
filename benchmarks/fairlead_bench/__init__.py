"""Measures Fairlead against Apache Kafka: same machine, same disk, same clients, one run."""
