"""A cluster of local processes: its folder, its ports, and the supervisor that runs it."""
