"""Rows that lack views: who has what, and the gates that say so to the engine."""
