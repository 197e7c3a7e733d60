"""A fitted model behind HTTP, with Ray Serve: `pip install "raymkl[serve]"`.

    serve run raymkl.serve:app model=m.raymkl          or, in Python: ray.serve.run(raymkl.serve.app({"model":
    "m.raymkl"}))

    POST /predict   {"rows": [...], "contributions": false} -> {"prediction": [...], "decision": [...]}, and
                    "classes" with "probability", "contributions" where the model has them; rows that the
                    model cannot take are a 422 that names column and row
    GET  /          a page about the model, on which a row can be typed
    GET  /health    whether the replica has its model; /docs and /openapi.json are FastAPI's

Requests that come together are answered by one call of the model. All but `app` works without Ray: a body
becomes columns (`Inputs.columns`), columns become answers (`answers`).
"""

from .answers import answers as answers
from .application import app
from .inputs import BadRows as BadRows
from .inputs import Inputs as Inputs
from .inputs import parsed as parsed
from .page import page as page

__all__ = ["app"]  # the others are what it is made of
