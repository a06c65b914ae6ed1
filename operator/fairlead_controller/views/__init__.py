"""What the controller shows people of its cluster."""
