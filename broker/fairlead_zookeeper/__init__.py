"""A ZooKeeper client for asyncio, and the znodes that brokers and controllers share."""
