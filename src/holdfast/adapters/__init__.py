"""Adapters for agent frameworks: each stores the framework's sessions in Holdfast.

Each package needs the extra of its name; the rest of Holdfast needs none of them.
"""
