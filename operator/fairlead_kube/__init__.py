"""The Kubernetes API as the controller and the operator need it: a client and an informer."""
