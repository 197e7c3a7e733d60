"""What held-out decision values are good for: folds of a fit as heads beside it, calibrated probabilities,
sets and intervals.
"""
