"""Transactions: the coordinator of transactional ids, and what it asks other brokers for."""
