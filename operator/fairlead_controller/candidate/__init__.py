"""The controller process on Kubernetes: one of several candidates; the Lease makes one act."""
