"""Records between JSON and the log: embedded and rendered, given a partition, fetched."""
