"""Moves of replicas from one log directory of a broker to another (KIP-113)."""
