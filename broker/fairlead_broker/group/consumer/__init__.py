"""Groups of the consumer protocol (KIP-848), and the way from and to the classic one. Pure."""
