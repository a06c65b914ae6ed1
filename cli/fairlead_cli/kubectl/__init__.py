"""`kubectl fairlead`: clusters, topics and drills of a Kubernetes cluster, as kubectl's plugin."""
