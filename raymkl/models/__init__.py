"""Estimators in the manner of scikit-learn: they check, describe heads, hand to the engine, and keep
arrays.
"""
