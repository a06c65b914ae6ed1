"""A client of ZooKeeper for asyncio, and the znodes that brokers and controllers share."""
