"""The operator: resources of Kubernetes in, calls of the controller out, its image as status."""
