"""Consumer instances of REST Proxy v2: consumers that this broker runs for HTTP clients."""
