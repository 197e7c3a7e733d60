"""Clusters with a machine each: a mixture over the rows of all shards, and machines over random features that
have a say in it.
"""
