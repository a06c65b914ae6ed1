"""Consumer groups and offsets under seeded faults: real coordinators over a model of the log."""
