"""Durable snapshots: where everything of a session is kept."""
