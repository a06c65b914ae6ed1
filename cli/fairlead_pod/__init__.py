"""What runs as process 1 of a container: it starts the real processes and looks after them.

Standard library only, and little of it: these processes live as long as the pod and would
otherwise cost more memory than what they look after. Nothing here imports the broker.
"""
