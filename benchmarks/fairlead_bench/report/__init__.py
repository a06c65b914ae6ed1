"""The metrics with their units and targets, and the reports."""
