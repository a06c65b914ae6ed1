"""What is done to a peer, and what of it is counted: a row of the report or several each."""
