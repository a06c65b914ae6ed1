"""What the controller decides. Pure: a state and an event in, changes out."""
