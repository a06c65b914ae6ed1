"""Replicas of partitions move between brokers (KIP-455), and all of them off cordoned brokers."""
