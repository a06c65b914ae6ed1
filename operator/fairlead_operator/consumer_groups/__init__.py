"""ConsumerGroup resources: status from the groups' coordinators, and resets, each done once."""
