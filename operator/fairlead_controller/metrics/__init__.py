"""The metrics of controllers."""
