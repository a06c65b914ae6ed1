"""Consumer groups: membership, offsets, descriptions."""
