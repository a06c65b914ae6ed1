"""The records of `__consumer_offsets`, and the rules that are checked before a write."""
