"""What clients and followers want of a broker, kept between their fetches (KIP-227)."""
