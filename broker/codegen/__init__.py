"""Generates `fairlead_wire.messages` from Kafka's published message definitions.

Development only: brokers and tools import the generated modules, never the generator itself.
"""
