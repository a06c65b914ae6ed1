"""Produce, Fetch and what else reads or removes records."""
