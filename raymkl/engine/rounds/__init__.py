"""The side of the coordinator: rounds, the crew of shards that it asks, the blocks and columns that it
keeps.
"""
