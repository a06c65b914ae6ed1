"""The brokers themselves: what they speak, hold and can do."""
