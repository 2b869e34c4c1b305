"""Portable documents: a session at one position as one JSON file."""
