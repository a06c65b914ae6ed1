"""Builders of the manifests that make a cluster. Pure: specs in, dicts out."""
