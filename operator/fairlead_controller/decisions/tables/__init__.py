"""What the tables of the store hold: lines, their sizes and order, and the state in them. Pure."""
