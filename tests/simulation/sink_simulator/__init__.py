"""Exactly-once writes of Spark under seeded faults: the real decisions over a model of brokers."""
