"""Process 1 of a container: it starts the real processes and restarts them.

It uses little more than the standard library: these processes live as long as the pod and would
otherwise need more memory than their children. Nothing here imports the broker.
"""
