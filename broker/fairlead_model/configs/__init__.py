"""Configs: their names, types, defaults and limits, and which value takes effect. Pure."""
