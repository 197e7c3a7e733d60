"""Models behind HTTP: what bodies become, what is answered, the page, and all of it through Ray Serve."""

import json
import re
import socket
import urllib.error
import urllib.request

import numpy as np
import pandas as pd
import pytest

from raymkl import ClusteredMKLClassifier, MKLClassifier, MKLRegressor, kernels, load
from raymkl.models.table_model import Preparation, TableModel
from raymkl.serve import BadRows, Inputs, answers, app, page, parsed

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(120, 3)), columns=["age", "dose", "level"])
LABEL = np.where(FRAME["age"] + FRAME["dose"] > 0, "ill", "well")
BANK = kernels.rbf([0.1, 1.0])


def named(**params):
    return MKLClassifier(kernels=BANK, engine="local", **params).fit(FRAME, LABEL)


@pytest.fixture(scope="module")
def model():
    return named(loss="logistic")


def ask(model, body):
    inputs = Inputs.of(model)
    (answer,) = answers(model, inputs, [parsed(model, inputs, json.dumps(body).encode())])
    if isinstance(answer, BadRows):
        raise answer
    return json.loads(json.dumps(answer, allow_nan=False))


def test_records(model):
    answer = ask(model, {"rows": FRAME[:4].assign(other="x").to_dict("records"), "contributions": True})
    assert answer["prediction"] == model.predict(FRAME[:4]).tolist() and answer["classes"] == ["ill", "well"]
    np.testing.assert_allclose(answer["decision"], model.decision_function(FRAME[:4]))
    np.testing.assert_allclose(answer["probability"], model.predict_proba(FRAME[:4]))
    np.testing.assert_allclose(answer["contributions"], model.contributions(FRAME[:4]))
    assert set(ask(named(), {"rows": FRAME[:1].to_dict("records")})) == {"prediction", "decision"}


def test_arrays_and_views_and_regression():
    X, y = FRAME.to_numpy(), FRAME["age"].to_numpy()
    plain = MKLClassifier(kernels=BANK, engine="local").fit(X, LABEL)
    assert ask(plain, {"rows": X[:3].tolist()})["prediction"] == plain.predict(X[:3]).tolist()
    with pytest.raises(BadRows, match="row 1 has length 2"):
        ask(plain, {"rows": [[1, 2, 3], [1, 2]]})
    with pytest.raises(BadRows, match="row 0, column 2 must be a number"):
        ask(plain, {"rows": [[1, 2, "x"]]})
    regressor = MKLRegressor(kernels=BANK, engine="local").fit(X, y)
    np.testing.assert_allclose(
        ask(regressor, {"rows": X[:3].tolist()})["prediction"], regressor.predict(X[:3])
    )
    views = {"a": X[:, :2], "b": X[:, 2:]}
    several = MKLClassifier(
        kernels=[kernels.RBF(gamma=1.0, view="a"), kernels.Linear(view="b")], engine="local"
    ).fit(views, LABEL)
    want = several.predict({name: view[:2] for name, view in views.items()}).tolist()
    assert (
        ask(several, {"rows": {name: view[:2].tolist() for name, view in views.items()}})["prediction"]
        == want
    )
    assert (
        ask(several, {"rows": [{"a": X[i, :2].tolist(), "b": X[i, 2:].tolist()} for i in range(2)]})[
            "prediction"
        ]
        == want
    )
    with pytest.raises(BadRows, match="row 0, column 'a' has length 1"):
        ask(several, {"rows": [{"a": [1], "b": [1]}]})


def test_tables_and_mixtures(tmp_path):
    preparation = Preparation(
        {None: ["age", "dose"]},
        {"age": 1, "dose": 1},
        {"age": np.array([1.0])},
        {"age": np.array([2.0])},
        "label",
    )
    inner = MKLClassifier(kernels=BANK, engine="local").fit(preparation.transform(FRAME), LABEL)
    table = TableModel(inner, preparation)
    answer = ask(table, {"rows": FRAME[:3].to_dict("records"), "contributions": True})
    assert answer["prediction"] == table.predict(FRAME[:3]).tolist() and np.shape(
        answer["contributions"]
    ) == (3, 2)
    mixture = ClusteredMKLClassifier(engine="local", random_state=0).fit(FRAME, LABEL)
    answer = ask(mixture, {"rows": FRAME[:3].to_dict("records")})
    np.testing.assert_allclose(answer["probability"], mixture.predict_proba(FRAME[:3]))
    with pytest.raises(BadRows, match="no contributions"):
        ask(mixture, {"rows": FRAME[:3].to_dict("records"), "contributions": True})
    assert "no weights" in page(mixture, Inputs.of(mixture))


@pytest.mark.parametrize(
    "body, words",
    [
        ({"nonsense": 1}, "rows"),
        ([1], "rows"),
        ({"rows": []}, "empty"),
        ({"rows": 3}, "list"),
        ({"rows": [3]}, "row 0 must be a record"),
        ({"rows": [{"age": 1.0}]}, "row 0: column 'dose' is missing"),
        ({"rows": [{"age": 1, "dose": "x", "level": 1}]}, "row 0, column 'dose' must be a number, got 'x'"),
        ({"rows": [{"age": 1, "dose": None, "level": 1}]}, "'dose' must be a number, got null"),
        ({"rows": [{"age": 1, "dose": True, "level": 1}]}, "'dose' must be a number"),
        ({"rows": [{"age": 1, "dose": float("nan"), "level": 1}]}, "'dose' must be a finite number, got NaN"),
        ({"rows": [{"age": 1, "dose": 10**400, "level": 1}]}, "'dose' must be a finite number"),
        ({"rows": [{"age": 1, "dose": 1, "level": 1}], "contributions": 1}, "contributions"),
        ({"rows": [{"age": 1, "dose": 1, "level": 1}], "more": 1}, "'more'"),
    ],
)
def test_bad_bodies(model, body, words):
    with pytest.raises(BadRows, match=re.escape(words)):
        ask(model, body)


def test_requests_of_one_batch_do_not_touch_each_other():
    """Rows that only the kernel refuses are the fault of their request alone."""
    X = np.abs(FRAME.to_numpy())
    model = MKLClassifier(kernels=[kernels.Chi2(gamma=1.0)], engine="local").fit(X, LABEL)
    inputs = Inputs.of(model)
    good, bad, more = answers(
        model, inputs, [({"": X[:2]}, False), ({"": -X[:1]}, False), ({"": X[2:3]}, True)]
    )
    assert isinstance(bad, BadRows) and "negative" in str(bad)
    assert good["prediction"] + more["prediction"] == model.predict(X[:3]).tolist()
    assert "contributions" in more and "contributions" not in good


def test_the_page_escapes_names_and_refers_to_nothing_outside():
    evil = "</script><b>dose&"
    model = MKLClassifier(kernels=BANK, engine="local").fit(FRAME.rename(columns={"dose": evil}), LABEL)
    text = page(model, Inputs.of(model))
    assert evil not in text and "&lt;/script&gt;&lt;b&gt;dose&amp;" in text and "://" not in text
    assert (
        "MKLClassifier" in text
        and "RBF(" in text
        and f"{model.kernel_weights_[0]:.4g}" in text
        and "age" in text
    )
    about = json.loads(re.search(r'id="about">(.*?)</script>', text, re.S).group(1))
    assert [field["name"] for field in about["fields"]] == ["age", evil, "level"]


def test_bad_arguments_are_errors_before_anything_starts(tmp_path):
    (tmp_path / "broken.raymkl").write_text("nothing")
    with pytest.raises(FileNotFoundError, match=r"no model file .*gone\.raymkl"):
        app({"model": str(tmp_path / "gone.raymkl")})
    with pytest.raises(ValueError, match="not a raymkl model file"):
        app({"model": str(tmp_path / "broken.raymkl")})
    with pytest.raises(ValueError, match="model must be"):
        app({})
    with pytest.raises(ValueError, match="modle"):
        app({"modle": "x"})
    with pytest.raises(ValueError, match="max_batch_size"):
        app({"model": "x", "max_batch_size": "many"})
    matrix = MKLClassifier(kernels="precomputed", engine="local").fit(BANK[0](FRAME)[:, :, None], LABEL)
    matrix.save(tmp_path / "matrix.raymkl")
    with pytest.raises(ValueError, match="ready-made"):
        app({"model": tmp_path / "matrix.raymkl"})


@pytest.mark.slow
def test_through_serve(ray_cluster, model, tmp_path):
    serve = pytest.importorskip("ray.serve", reason="needs ray[serve]")
    path = tmp_path / "m.raymkl"
    model.save(path)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]

    def get(where, body=None):
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"http://127.0.0.1:{port}{where}", data), timeout=900
            ) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(app({"model": str(path)}), route_prefix="/")
        status, text = get("/predict", {"rows": FRAME[:5].to_dict("records"), "contributions": True})
        assert status == 200
        answer = json.loads(text)
        assert answer["prediction"] == load(path).predict(FRAME[:5]).tolist()
        np.testing.assert_allclose(answer["decision"], model.decision_function(FRAME[:5]))
        status, text = get("/predict", {"rows": [{"age": 1.0}]})
        assert status == 422 and "dose" in text and "row 0" in text
        assert get("/predict", {"nonsense": 1})[0] == 422
        assert get("/health")[0] == 200 and "MKLClassifier" in get("/")[1]
        assert "/predict" in json.loads(get("/openapi.json")[1])["paths"]
    finally:
        serve.shutdown()
