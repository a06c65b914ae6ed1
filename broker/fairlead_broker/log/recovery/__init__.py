"""Recovery of logs after a crash, many at once."""
