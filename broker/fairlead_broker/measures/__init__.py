"""What the broker measures, and the format in which Prometheus reads it."""
