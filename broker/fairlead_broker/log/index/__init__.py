"""Finding a place in a segment: by offset, by time, and by aborted transaction."""
