"""The scenarios: each one's measurements are one or several rows of the report."""
