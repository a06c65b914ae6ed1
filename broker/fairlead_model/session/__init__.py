"""What brokers and controllers say to each other: calls, messages, refusals, bounds. Pure."""
