"""Records as input (lines, CSV, JSON) and as output (text, raw bytes, JSON)."""
