"""Generates `fairlead_wire.messages` from Kafka's published message definitions.

Development only: brokers and tools import what it wrote, never the generator itself.
"""
