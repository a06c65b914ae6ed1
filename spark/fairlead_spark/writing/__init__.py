"""Rows on their way to topics: encoded, routed, and sent by idempotent producers."""
