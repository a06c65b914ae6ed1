"""Topic resources: from the API server to the controller, and its answers into statuses."""
