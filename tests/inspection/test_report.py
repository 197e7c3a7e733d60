"""The report: stands alone, says what the model holds, escapes what users named, and works for every kind of
model.
"""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import NotFittedError

import raymkl
from raymkl import MKLClassifier, MKLRegressor, kernels, load
from raymkl.inspection.report import evidence
from raymkl.inspection.report.markup import number

BANK = [*kernels.rbf([0.01, 0.1, 0.5]), kernels.Linear()]
SECTIONS = [
    "summary",
    "weights",
    "contributions",
    "convergence",
    "support",
    "alignment",
    "bound",
    "settings",
    "environment",
]


class Structure(HTMLParser):
    """Collects text, ids and attributes, and fails when tags are not closed in order."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.words, self.links, self.tags = [], [], [], [], []
        self.feed(page)
        assert self.open == [], self.open

    def handle_starttag(self, tag, attributes):
        self._note(tag, attributes)
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self._note(tag, attributes)

    def _note(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes[name] for name in ("href", "src", "xlink:href") if name in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, words):
        self.words.append(words)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def checked(page):
    """Structure of a page that must stand alone."""
    structure = Structure(page)
    assert len(page) > 20_000
    assert "http://" not in page and "https://" not in page and "url(" not in page and "@import" not in page
    assert not {"script", "img", "link", "iframe"} & set(structure.tags)
    assert all(link.startswith("#") and link[1:] in structure.ids for link in structure.links)
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S).lower().replace("nance", "")
    return structure


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X, y = X[:500] / 16.0, y[:500]
    return X[::2], y[::2], X[1::2], y[1::2]


@pytest.fixture(scope="module")
def binary(digits):
    X, y, *_ = digits
    return MKLClassifier(kernels=BANK, engine="local").fit(X, np.where(y % 2 == 1, "odd", "even"))


@pytest.fixture(scope="module")
def many(digits):
    X, y, *_ = digits
    return MKLClassifier(kernels=BANK, engine="local").fit(X, y)


def test_two_classes_with_labels(binary, digits):
    _, _, Z, z = digits
    truth = np.where(z % 2 == 1, "odd", "even")
    structure = checked(raymkl.report(binary, Z, truth))
    assert [
        name for name in structure.ids if name != "predictions"
    ] == SECTIONS and "predictions" in structure.ids
    assert f"accuracy {number(binary.score(Z, truth))}" in structure.text
    assert "ROC curve of odd, area" in structure.text
    assert f"{number(len(binary.support_))} of {number(250)} training rows" in structure.text
    for kernel, weight in zip(binary.kernels_, binary.kernel_weights_, strict=True):
        assert repr(kernel) in structure.text and number(weight) in structure.text
    assert f"{binary.duality_gap_:.2g}" in structure.text and "converged" in structure.text


def test_several_classes_and_files(many, digits, tmp_path):
    _, _, Z, z = digits
    many.save(tmp_path / "m.raymkl")
    loaded = load(tmp_path / "m.raymkl")
    page = raymkl.report(loaded, Z, z, path=tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == page
    structure = checked(page)
    assert "Weight of each kernel, per class" in structure.text and "mean of 10 classes" in structure.text
    assert structure.text.count("aria-label") == 0 and page.count("<svg") > 10
    wrong = int(np.sum(loaded.predict(Z) != z))
    counts = re.search(r"is / predicted.*?</table>", page, re.S).group()
    table = np.array(
        [
            [int(v.replace(",", "")) for v in re.findall(r'number">([\d,]+)<', row)]
            for row in counts.split("<tr>")[1:]
        ]
    )
    assert table.shape == (10, 10) and table.sum() - np.trace(table) == wrong


def test_without_examples_the_support_vectors_stand_in(many, tmp_path):
    many.save(tmp_path / "m.raymkl")
    structure = checked(raymkl.report(load(tmp_path / "m.raymkl")))
    assert structure.ids == SECTIONS
    assert "on the support vectors" in structure.text and "support vector 0:" in structure.text
    assert "Convergence" in structure.text and "Nothing was recorded" not in structure.text


def test_contributions_shown_are_those_of_the_model(binary, digits):
    _, _, Z, _ = digits
    structure = checked(raymkl.report(binary, Z[:5]))
    parts, values = binary.contributions(Z[:5]), binary.decision_function(Z[:5])
    for i in range(5):
        label = binary.classes_[int(values[i] > 0)]
        assert f"row {i}: {label}, f = {values[i]:.2f}" in structure.text
    page = raymkl.report(binary, Z[:5])
    assert f"/ {BANK[1]!r}: {parts[3, 1]:.6g}" in page
    mean = np.abs(parts).mean(axis=0)
    assert all(f"{kernel!r}: {value:.6g}" in page for kernel, value in zip(BANK, mean, strict=True))


def test_names_of_users_are_escaped(digits):
    X, y, *_ = digits
    evil = '<script>alert("x")</script>&http://evil.example'
    labels = np.where(y > 4, evil, "plain")
    model = MKLClassifier(kernels=kernels.rbf([0.1, 1.0], view=evil), engine="local").fit({evil: X}, labels)
    page = raymkl.report(model, {evil: X}, labels)
    assert "<script" not in page and "evil.example" in page
    assert evil in checked(page).text


def test_a_thousand_kernels(digits):
    X, y, Z, z = digits
    bank = kernels.rbf(np.geomspace(1e-4, 10, 1000))
    model = MKLClassifier(kernels=bank, engine="local").fit(X[:120], y[:120] % 2)
    structure = checked(raymkl.report(model, Z[:60], z[:60] % 2))
    assert "the 30 largest of 1,000" in structure.text and "1,000 kernels" in structure.text
    assert "in the order of the list of kernels" in structure.text
    assert len(structure.words) < 30_000


def test_localized_weights(digits):
    X, y, Z, z = digits
    binary = raymkl.ConvexLocalizedMKLClassifier(
        kernels=BANK[:3], n_clusters=3, random_state=0, engine="local"
    ).fit(X, y % 2)
    structure = checked(raymkl.report(binary, Z, z % 2))
    assert "per cluster" in structure.text and "cluster 2" in structure.text
    few = y < 3
    several = raymkl.ConvexLocalizedMKLClassifier(
        kernels=BANK[:3], n_clusters=3, random_state=0, engine="local"
    ).fit(X[few], y[few])
    assert several.kernel_weights_.shape == (3, 3, 3)
    assert "2, cluster 2" in checked(raymkl.report(several)).text


def test_regression():
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:150] / X.std(), y[:150] / y.std()
    model = MKLRegressor(kernels=BANK, engine="local").fit(X, y)
    structure = checked(raymkl.report(model, X, y))
    assert f"R squared {number(model.score(X, y))}" in structure.text
    checked(raymkl.report(model))


def test_ready_made_matrices(digits):
    X, y, Z, z = digits
    K = np.stack([kernel(X) for kernel in BANK], axis=-1)
    K_test = np.stack([kernel(Z, X) for kernel in BANK], axis=-1)
    model = MKLClassifier(kernels="precomputed", engine="local").fit(K, y % 2)
    assert "which it does not hold" in checked(raymkl.report(model)).text
    assert "Alignment of each pair" in checked(raymkl.report(model, K, y % 2)).text
    narrow = checked(raymkl.report(model, K_test[:50, model.support_], z[:50] % 2)).text
    assert "which it does not hold" in narrow and "ROC curve" in narrow


def test_shared_weights_and_few_labels(digits):
    X, y, Z, z = digits
    model = MKLClassifier(kernels=BANK, engine="local", shared_weights=True).fit(X, y)
    assert "per class" not in Structure(raymkl.report(model)).text
    one = z == 3
    page = Structure(raymkl.report(model, Z[one], z[one])).text
    assert "one class only" in page
    assert f"accuracy {number(model.score(Z[one], z[one]))}" in page


def test_measures_are_those_of_scikit_learn(many, digits):
    from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

    _, _, Z, z = digits
    text = Structure(raymkl.report(many, Z, z)).text
    predicted, values = many.predict(Z), many.decision_function(Z)
    assert f"balanced accuracy {number(balanced_accuracy_score(z, predicted))}" in text
    assert f"F1, mean over classes {number(f1_score(z, predicted, average='macro'))}" in text
    areas = [roc_auc_score(z == label, values[:, h]) for h, label in enumerate(many.classes_)]
    assert f"mean of 10 classes, AUC {np.mean(areas):.4f}" in text
    assert f"{many.classes_[np.argmin(areas)]}, AUC {min(areas):.4f}" in text


def test_a_fit_that_stopped_short_says_so(digits):
    X, y, *_ = digits
    with pytest.warns(UserWarning, match="gap"):
        model = MKLClassifier(kernels=BANK, engine="local", max_iter=3, C=100.0, tol=1e-9).fit(X, y % 2)
    structure = checked(raymkl.report(model))
    assert "short of tol" in structure.text or "not yet bracketed" in structure.text


def test_unseen_labels_and_many_classes(monkeypatch, many, digits):
    _, _, Z, z = digits
    z = z.copy()
    z[:3] = 77
    assert "77 (3)" in Structure(raymkl.report(many, Z, z)).text
    monkeypatch.setattr(evidence, "MOST_CLASSES", 4)
    assert "the 4 classes with most mistakes" in Structure(raymkl.report(many, Z, z)).text


def test_errors(binary, digits):
    X, y, *_ = digits
    with pytest.raises(TypeError, match="model must be"):
        raymkl.report("model")
    with pytest.raises(NotFittedError):
        raymkl.report(MKLClassifier())
    with pytest.raises(ValueError, match="y was given without X"):
        raymkl.report(binary, y=y)
    with pytest.raises(ValueError, match="different lengths"):
        raymkl.report(binary, X, y[:-1])
    with pytest.raises(ValueError, match="none of the classes"):
        raymkl.report(binary, X, y)


def test_numbers_are_readable():
    assert [number(v) for v in (12345, 0.123456, 1e-7, float("inf"), float("nan"))] == [
        "12,345",
        "0.1235",
        "1e-07",
        "∞",
        "—",
    ]


def test_models_that_take_tables(digits):
    import pandas as pd

    from raymkl import diagnostics
    from raymkl.models.table_model import Preparation, TableModel

    X, y, *_ = digits
    frame = pd.DataFrame({f"x{k}": X[:, 20 + k] for k in range(8)})
    names = list(frame.columns)
    mean, scale = ({name: np.array([value]) for name in names} for value in (0.5, 2.0))
    preparation = Preparation({None: names}, dict.fromkeys(names, 1), mean, scale)
    inner = MKLClassifier(kernels=BANK, engine="local").fit(preparation.transform(frame), y % 2)
    model = TableModel(inner, preparation)
    assert f"accuracy {number(model.score(frame, y % 2))}" in checked(raymkl.report(model, frame, y % 2)).text
    np.testing.assert_allclose(diagnostics.block_norms(model), diagnostics.block_norms(inner))
    np.testing.assert_allclose(
        diagnostics.alignment(model, frame), diagnostics.alignment(BANK, (X[:, 20:28] - 0.5) / 2.0)
    )
    assert diagnostics.bound_factor(model).best_p == diagnostics.bound_factor(inner).best_p
