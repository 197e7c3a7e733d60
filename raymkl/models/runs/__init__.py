"""What surrounds a fit: callbacks while it runs, and what a run with a name leaves."""
