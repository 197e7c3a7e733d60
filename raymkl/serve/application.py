"""The application of Ray Serve around a model of a file."""

import asyncio
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from ..data.sources import file_system
from ..io import load
from .answers import answers
from .inputs import BadRows, Inputs, inner, parsed
from .page import page

# What `app` takes besides the model, with its defaults: requests that one call of the model answers, and how
# long the first waits.
BATCHING = {"max_batch_size": 64, "batch_wait_timeout_s": 0.005}
# What /docs says of requests and of those that are refused.
ROWS = {
    "description": "records of named columns, arrays, or a dict of views",
    "anyOf": [{"type": "array"}, {"type": "object"}],
}
SCHEMA = {
    "type": "object",
    "required": ["rows"],
    "properties": {"rows": ROWS, "contributions": {"type": "boolean", "default": False}},
}
REQUEST = {"requestBody": {"required": True, "content": {"application/json": {"schema": SCHEMA}}}}
REFUSALS: dict[int | str, dict[str, Any]] = {
    422: {"description": "rows that the model cannot take; detail names column and row"}
}


def opened(path: str) -> Any:
    """The model of a path or of a URI that `pyarrow.fs` opens."""
    files, place = file_system(path)
    if files.type_name == "local":
        return load(place)
    with tempfile.TemporaryDirectory() as folder, files.open_input_stream(place, compression=None) as stream:
        copy = Path(folder) / "model.raymkl"
        copy.write_bytes(stream.read())
        return load(copy)


def _checked(args: Any) -> tuple[str, int, float]:
    """Address of the model and settings of batches. What can be seen to be wrong from here is an error."""
    if not isinstance(args, dict):
        raise TypeError(f'app takes a dict such as {{"model": "m.raymkl"}}, got {type(args).__name__}')
    unknown = sorted(set(args) - {"model", *BATCHING}, key=str)
    if unknown:
        raise ValueError(f"app has no argument {unknown[0]!r}; it takes model, {', '.join(BATCHING)}")
    if not isinstance(args.get("model"), str | os.PathLike) or not os.fspath(args["model"]):
        raise ValueError(f"model must be the path or URI of a model file, got {args.get('model')!r}")
    settings = {}
    for name, default in BATCHING.items():
        try:
            settings[name] = type(default)(args.get(name, default))  # `serve run` hands over texts
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be a number, got {args[name]!r}") from None
    if settings["max_batch_size"] < 1 or not 0 <= settings["batch_wait_timeout_s"] < math.inf:
        raise ValueError(
            f"max_batch_size must be at least 1 and batch_wait_timeout_s at least 0, got {settings}"
        )
    path = os.fspath(args["model"])
    files, place = file_system(path)
    local = files.type_name == "local"
    path = place if local else path  # replicas have another working directory
    if not local or os.path.isdir(os.path.dirname(place)):  # else a directory of other machines
        try:
            Inputs.of(opened(path))
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no model file {path}") from None
        except OSError:  # storage that this machine may not read; a replica may
            if local:
                raise
    return path, int(settings["max_batch_size"]), float(settings["batch_wait_timeout_s"])


def app(args: dict[str, Any]) -> Any:
    """An application of Ray Serve that answers for the model of a file (see `raymkl.serve` for what it
    answers).

    A missing or damaged file is an error here, or, in a directory or storage that only other machines see,
    when a replica starts.

    Parameters
    ----------
    args : dict
        "model": path of a model file, or a URI that `pyarrow.fs` opens (s3://bucket/m.raymkl); all replicas
        must reach it. "max_batch_size" and "batch_wait_timeout_s": requests that are answered together at
        most (64), and for how many seconds the first of them waits for others (0.005).

    Returns
    -------
    application : ray.serve.Application
        What `ray.serve.run` takes.

    Examples
    --------
    >>> from ray import serve  # doctest: +SKIP
    >>> serve.run(raymkl.serve.app({"model": "m.raymkl"}))  # doctest: +SKIP
    """
    path, most, wait = _checked(args)
    try:
        from fastapi import FastAPI, HTTPException, Request
        from fastapi.responses import HTMLResponse
        from ray import serve
    except ImportError as error:
        raise ImportError(
            'serving needs ray[serve], which is not installed; run: pip install "raymkl[serve]"'
        ) from error

    api = FastAPI(title="raymkl", description="Predictions of a multiple kernel learning model.")

    @serve.ingress(api)
    class Served:
        def __init__(self) -> None:
            self.model = opened(path)
            self.inputs = Inputs.of(self.model)
            self.page = page(self.model, self.inputs)

        @serve.batch(max_batch_size=most, batch_wait_timeout_s=wait)
        async def together(self, requests: list) -> list:
            # In a thread, so that checks of health are answered meanwhile.
            return await asyncio.to_thread(answers, self.model, self.inputs, requests)

        @api.post("/predict", openapi_extra=REQUEST, responses=REFUSALS)
        async def predict(self, request: Request) -> dict:
            try:
                answer = await self.together(parsed(self.model, self.inputs, await request.body()))
            except BadRows as error:
                raise HTTPException(422, str(error)) from None
            if isinstance(answer, BadRows):
                raise HTTPException(422, str(answer))
            return answer

        @api.get("/", response_class=HTMLResponse)
        async def about(self) -> str:
            return self.page

        @api.get("/health")
        async def health(self) -> dict:
            self.check_health()
            return {"status": "ok", "model": type(inner(self.model)).__name__}

        def check_health(self) -> None:
            """Serve asks every replica, and replaces one that raises.

            A replica without a model did not start.
            """
            if not self.page:
                raise RuntimeError("the replica has no model")

    deployment: Any = serve.deployment(name="raymkl")(Served)
    return deployment.bind()
