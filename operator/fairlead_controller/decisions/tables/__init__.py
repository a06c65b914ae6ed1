"""The content of the store's tables: lines, their sizes and order, and the state in them. Pure."""
