"""Consumer instances of REST Proxy v2: consumers that this broker is on behalf of HTTP clients."""
