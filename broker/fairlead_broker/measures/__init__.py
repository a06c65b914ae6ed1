"""What the broker measures of itself, and how figures are told."""
