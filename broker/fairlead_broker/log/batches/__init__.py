"""Looking into batches: headers, records one by one, and what a leader demands of them."""
