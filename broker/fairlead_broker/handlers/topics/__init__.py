"""Topics and partitions: what they are, where they are, who leads them."""
