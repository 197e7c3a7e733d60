"""The side of a shard: its rows and gradients, what it adds up, and what it proves."""
