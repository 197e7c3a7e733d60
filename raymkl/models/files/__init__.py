"""Model files: `entries` writes and reads the parts of a model, `checks` says whether they fit together.

`raymkl.io` saves and loads with them; `saving` is the method of the models.
"""
