"""`fairlead whatif`: the effects of losing brokers, before it happens."""
