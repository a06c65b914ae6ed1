"""What is kept of the logs of compacted topics, and the process that writes it."""
