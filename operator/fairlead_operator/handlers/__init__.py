"""kopf's handlers: decorators and a call each. Whatever is decided is decided elsewhere."""
