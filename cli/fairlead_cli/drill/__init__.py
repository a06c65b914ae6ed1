"""Failover drills: a fault under a verified workload, timed, with every record accounted for.

history, checker    what was sent and acknowledged, and what a reader found: pure
workload, probe     a Kafka client at full load, and a small one that finds the first new answer
reader              reads everything back with a client that took no part
watch               what brokers and controller say about who leads and who is alive
faults              kill, pause, stop, isolate, and always undoing it
run, report         one drill from preparation to verdict
"""
