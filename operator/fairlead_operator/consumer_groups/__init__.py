"""ConsumerGroup resources: what coordinators say into statuses, and resets, each once."""
