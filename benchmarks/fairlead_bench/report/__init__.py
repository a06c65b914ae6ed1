"""What is measured in which unit against which target, and how it is shown."""
