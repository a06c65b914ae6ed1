"""The session of brokers with the controller: calls, messages, refusals, limits. Pure."""
