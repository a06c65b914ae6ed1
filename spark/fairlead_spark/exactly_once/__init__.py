"""Writes that count each row once: prepared by tasks, decided and ended by the driver."""
