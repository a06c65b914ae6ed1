"""What a log knows of the producers that write it: sequences, epochs, open transactions."""
