"""What `__consumer_offsets` holds, and the rules that a record passes before it is written."""
