"""Thin shells around a session, one per way in."""
