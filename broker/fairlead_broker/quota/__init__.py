"""Client quotas on this broker: what clients have used, and how long they are held back."""
