"""Paths and shapes of REST v3: everything under `/v3/clusters`."""
