"""Certificates of clusters on Kubernetes: the authority, what it issues, and when."""
