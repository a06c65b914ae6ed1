"""`fairlead whatif`: what the loss of brokers would do, before it happens."""
