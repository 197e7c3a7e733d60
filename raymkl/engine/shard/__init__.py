"""The side of a shard: its rows, their pair statistics and gradients, what it adds up, and what it proves."""
