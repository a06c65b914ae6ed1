"""Sockets of brokers and controllers: listening and connecting, over IPv4 and IPv6."""
