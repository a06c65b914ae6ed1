"""The base of group and transaction coordinators: state in a partition of an internal topic."""
