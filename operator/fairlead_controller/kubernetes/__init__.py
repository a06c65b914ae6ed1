"""The controller process on Kubernetes: one of several candidates; one of them holds the Lease."""
