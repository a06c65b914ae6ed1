"""What groups, and later transactions, stand on: state kept in a partition of an internal topic."""
