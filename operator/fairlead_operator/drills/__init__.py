"""FailoverDrills in a cluster: a fault under a verified workload, measured, judged, always healed.

steps         the next step, from a drill's status and the observations: pure
health        whether a cluster may be broken on purpose now: pure
measurement   an agent's and the controller's figures into the drill's status: pure
agent_pod     the manifest of the pod that runs the load
agent_client  requests to that pod over HTTP
faults        breaking a broker or the controller
runner        the shell around all of these

A drill's progress is in its status and, within a run, in the memory of its pod; the operator keeps
none of it. So an operator that is restarted in the middle continues.
"""
