"""Records on their way in (lines, CSV, JSON) and out (text, raw bytes, JSON)."""
