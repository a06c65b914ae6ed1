"""Where replicas and leaders would go so that the brokers are even. Plans only; nothing moves."""
