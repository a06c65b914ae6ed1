"""Which records stay in the logs of compacted topics, and the process that rewrites these logs."""
