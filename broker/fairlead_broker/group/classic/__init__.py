"""Groups of the classic protocol: members, rebalances, one group as a state machine. Pure."""
