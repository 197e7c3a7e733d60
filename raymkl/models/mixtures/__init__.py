"""Mixtures whose number of clusters grows with the data: alone, and with a kernel machine for each
cluster.
"""
