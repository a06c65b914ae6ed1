"""Sockets as brokers and controllers share them: listening and connecting, IPv4 and IPv6."""
