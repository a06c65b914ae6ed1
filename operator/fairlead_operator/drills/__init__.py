"""FailoverDrills in a cluster: a fault under a verified workload, measured, judged, always healed.

steps         what to do next, from a drill's status and what can be seen: pure
health        whether a cluster may be broken on purpose now: pure
measurement   an agent's and the controller's figures into the drill's status: pure
agent_pod     the manifest of the pod that holds the load
agent_client  that pod, asked over HTTP
faults        breaking a broker or the controller
runner        the shell around all of it

A drill's progress is in its status and, within a run, in the memory of its pod; nothing is kept
here. So an operator that is restarted in the middle goes on.
"""
