"""The `fairlead` command: a local cluster and the everyday verbs of any Kafka-compatible one.

Each verb has a file. `local/` runs a cluster on this machine, `client/` talks to a cluster with
confluent-kafka, `records/` reads and prints records. The broker imports nothing of this package.
"""
