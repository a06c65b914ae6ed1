"""What is sent and read: generators of load as child processes, and what they used."""
