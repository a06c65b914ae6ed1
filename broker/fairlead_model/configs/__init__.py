"""What may be configured: names, types, defaults and limits, and which value holds. Pure."""
