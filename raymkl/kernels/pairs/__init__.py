"""Pair statistics, the families of kernels that are functions of one, and the few functions that span a
family.
"""
