"""Transactional ids, their partitions and markers, and how they are described."""
