"""Logins by SASL: the exchange, and the mechanisms that are served."""
