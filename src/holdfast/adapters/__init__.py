"""Adapters: store the sessions of agent frameworks in Holdfast.

Each adapter needs the extra of its name; nothing else in Holdfast imports it.
"""
