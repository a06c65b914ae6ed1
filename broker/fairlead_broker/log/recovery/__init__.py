"""Bringing logs back after a crash, many at once."""
