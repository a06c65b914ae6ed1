"""The HTTP API: Confluent's REST v3 and v2, answered by the broker itself.

`operations` says what an operation is (`table` lists them), `server` takes requests, `calls` asks
Kafka's handlers in this process or at the broker that leads, `v3` and `v2` have the shapes.
"""
