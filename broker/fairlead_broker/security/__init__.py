"""Who may enter and what they may do, as this broker knows it."""
