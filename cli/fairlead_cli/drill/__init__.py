"""Failover drills: a fault under a verified workload, measured, with every record accounted for.

history, checker    records sent and acknowledged, and records that a reader found: pure
workload, probe     a Kafka client at full load, and a small one that finds the first new answer
reader              reads everything back with a client that took no part
watch               leaders and live brokers, as brokers and the controller report them
faults              kill, pause, stop, isolate; a fault is always undone
run, report         one drill from preparation to verdict
"""
