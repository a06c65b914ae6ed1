"""Topic resources: from the API server to the controller, and what it says back into statuses."""
