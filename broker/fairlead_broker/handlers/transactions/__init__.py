"""Transactional ids, their partitions and markers, and what is told of them."""
