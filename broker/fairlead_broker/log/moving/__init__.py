"""A replica that goes from one log directory of its broker to another (KIP-113)."""
