"""The controller process on Kubernetes: one of several candidates, of which one holds the Lease."""
