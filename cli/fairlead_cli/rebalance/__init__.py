"""`fairlead rebalance`: plan to balance brokers; the plan is executed only on request."""
