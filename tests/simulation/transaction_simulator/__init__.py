"""One transactional id, its producers and partitions, under seeded faults."""
