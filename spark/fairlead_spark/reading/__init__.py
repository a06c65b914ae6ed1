"""What a query reads: which offsets, fetched how, as Arrow columns."""
