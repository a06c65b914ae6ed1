"""Paths and shapes of REST Proxy v2: `/topics`, `/brokers`."""
