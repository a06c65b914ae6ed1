"""The `fairlead` command: a local cluster and the everyday verbs of any Kafka-compatible one.

One file a verb; `local/` runs a cluster on this machine, `client/` talks to one with
confluent-kafka, `records/` reads and prints records. Nothing here is imported by the broker.
"""
