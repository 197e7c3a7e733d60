"""The report of a fitted model: one HTML file with pictures, and nothing that has to be fetched.

`page` puts sections together, `sections` and `evidence` say what stands in them, `charts` draw (plain SVG,
coloured by `style`), `facts` read the model.
"""
