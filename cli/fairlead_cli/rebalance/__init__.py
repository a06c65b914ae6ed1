"""`fairlead rebalance`: a plan that makes brokers even, shown first and carried out when asked."""
