"""The report of a fitted model: one HTML file with pictures, and nothing that has to be fetched.

`page` puts sections together, `sections` and `evidence` say what stands in them, `pictures` draw it with
the displays of `raymkl.plot`, `svg` makes pieces of the page of that, `style` has colours and layout, `facts`
read the model.
"""
