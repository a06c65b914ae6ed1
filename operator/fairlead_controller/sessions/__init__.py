"""The sessions of brokers: handshake, messages, and which brokers are dead."""
