"""Rebalances: plans that are made, approved and carried out, all of it kept in their statuses."""
