"""Transactions: the coordinator of transactional ids, and its requests to other brokers."""
