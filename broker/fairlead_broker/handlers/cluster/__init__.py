"""The brokers themselves: their APIs, log directories and features."""
