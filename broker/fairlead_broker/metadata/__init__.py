"""What Metadata answers know besides the cluster image."""
