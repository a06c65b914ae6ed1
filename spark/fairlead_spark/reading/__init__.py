"""The reading side of a query: choosing offsets, fetching, and decoding to Arrow columns."""
