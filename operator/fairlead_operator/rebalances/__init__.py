"""Rebalances: plans that are made, approved and carried out; their statuses hold all progress."""
