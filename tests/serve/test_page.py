"""The page of a served model in a browser: a row is typed, the button pressed, and the answer read."""

import json
import re
import shutil
import subprocess
import threading
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas as pd
import pytest

from raymkl import MKLClassifier, kernels
from raymkl.serve import BadRows, Inputs, answers, page, parsed

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium to show the page"),
]

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(90, 3)), columns=["age", "dose", "<b>level</b>"])
THREE = np.array(["a", "b", "c"])[np.arange(90) % 3]


def served(model, typed):
    """A server for a model as `application` is one, without Serve; its page types a row by itself."""
    inputs = Inputs.of(model)
    fill = "".join(
        f'document.querySelector("[name=f{k}]").value = {json.dumps(text)};' for k, text in enumerate(typed)
    )
    shown = page(model, inputs).replace(
        "</body>", f'<script>{fill} document.querySelector("button").click();</script></body>'
    )

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status, kind, text):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self):
            self.answer(200, "text/html", shown)

        def do_POST(self):
            assert self.path == "/predict"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                (found,) = answers(model, inputs, [parsed(model, inputs, body)])
                self.answer(200, "application/json", json.dumps(found))
            except BadRows as error:
                self.answer(422, "application/json", json.dumps({"detail": str(error)}))

        def log_message(self, *arguments):
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def seen(model, typed, tmp_path):
    """What stands under the form at last, cell by cell."""
    server = served(model, typed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=20000",
    ]
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        out = subprocess.run(
            [*command, "--dump-dom", address], capture_output=True, text=True, timeout=600, check=True
        ).stdout
    finally:
        server.shutdown()
        server.server_close()
    answer = out[out.index('<div id="answer"') : out.index('<script type="application/json"')]
    assert "<b>" not in answer
    return [unescape(text) for text in re.findall(r"<(?:td|th|h3|p)[^>]*>(.*?)</(?:td|th|h3|p)>", answer)]


def test_a_row_is_answered_with_each_kernels_part(tmp_path):
    bank = [*kernels.rbf([0.1, 1.0]), kernels.Linear(view="<b>level</b>")]
    model = MKLClassifier(kernels=bank, engine="local", loss="logistic").fit(
        FRAME, np.where(FRAME["age"] > 0, "ill", "well")
    )
    row = pd.DataFrame([[1.0, 0.5, -0.25]], columns=FRAME.columns)
    cells = seen(model, ["1", "0.5", "-0.25"], tmp_path)
    found = dict(zip(cells[::2], cells[1::2], strict=False))
    assert found["prediction"] == model.predict(row)[0]
    assert float(found["decision"]) == pytest.approx(model.decision_function(row)[0], rel=1e-5)
    assert float(found["probability of ill"]) == pytest.approx(model.predict_proba(row)[0, 0], rel=1e-5)
    table = cells[cells.index("Each kernel's part of the decision") + 1 :]
    assert table[:2] == ["kernel", "part"] and table[2::2] == [repr(kernel) for kernel in bank]
    np.testing.assert_allclose([float(part) for part in table[3::2]], model.contributions(row)[0], rtol=1e-5)


def test_several_classes_and_a_row_that_cannot_be_taken(tmp_path):
    model = MKLClassifier(kernels=kernels.rbf([0.1]), engine="local").fit(FRAME.to_numpy(), THREE)
    cells = seen(model, ["1, 0.5, -0.25"], tmp_path)
    assert cells[1] == model.predict([[1.0, 0.5, -0.25]])[0] and {"a", "b", "c"} <= set(cells)
    (words,) = seen(model, ["1, much, 0"], tmp_path)
    assert words == "row 0, column 1 must be a number, got 'much'"
