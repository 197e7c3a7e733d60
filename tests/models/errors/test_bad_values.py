"""Values that cannot be computed with are errors that say where they are: texts in tables, masked entries,
numbers that are too large.
"""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from raymkl import MKLClassifier, MKLRegressor
from raymkl.kernels import RBF, Chi2, Laplacian, Linear, Polynomial
from tests.reference import apart, gram, noisy_problem

N = 40
X, Y = noisy_problem(N, seed=9)
X = X[:, :3]
FRAME = pd.DataFrame(X, columns=list("abc"))
WORDS = ["Berlin" if i == 7 else str(i) for i in range(N)]  # all but one are numbers in writing
BANK = [RBF(gamma=0.1), Linear()]


def fit(X=X, y=Y, kind=MKLClassifier, **more):
    return kind(**{"kernels": BANK, "engine": "local", **more}).fit(X, y)


# -- columns that are no numbers -------------------------------------------------------------------


class OtherFrame:
    """What polars has of a table: columns by name, and an array of everything."""

    def __init__(self, columns):
        self.data, self.columns = columns, list(columns)
        self.shape = (N, len(self.columns))

    def __getitem__(self, name):
        return self.data[name]

    def __len__(self):
        return N

    def __array__(self, dtype=None, copy=None):
        return np.array([list(self.data[name]) for name in self.columns], object).T


TABLES = {
    "pandas": lambda column: FRAME.assign(city=column),
    "Arrow": lambda column: pa.Table.from_pandas(FRAME).append_column("city", pa.array(column)),
    "another": lambda column: OtherFrame({**{name: X[:, k] for k, name in enumerate("abc")}, "city": column}),
}


@pytest.mark.parametrize("library", TABLES)
def test_a_column_of_text_is_named(library):
    with pytest.raises(
        ValueError, match=r"^X has entries that are not numbers: column 'city' holds 'Berlin' \(row 7\)$"
    ):
        fit(TABLES[library](WORDS))
    fitted = fit(TABLES[library]([str(k) for k in range(N)]))  # numbers in writing are numbers
    with pytest.raises(ValueError, match=r"column 'city' holds 'Berlin' \(row 7\)$"):
        fitted.predict(TABLES[library](WORDS))


@pytest.mark.parametrize("library", ["pandas", "Arrow"])
def test_in_views_and_in_tables_of_a_dict(library):
    table = TABLES[library](WORDS)
    with pytest.raises(
        ValueError, match=r"view \['b', 'city'\] of X has .* column 'city' holds 'Berlin' \(row 7\)"
    ):
        fit(table, kernels=[RBF(view=["b", "city"])])
    with pytest.raises(ValueError, match=r"view 'left' of X has .* column 'city' holds 'Berlin' \(row 7\)"):
        fit({"left": table, "right": X}, kernels=[RBF(view="left"), Linear(view="right")])
    with pytest.raises(ValueError, match=r"column 'city' holds 'Berlin' \(row 7\)"):
        fit({"left": table, "right": X}, kernels=[RBF(view=("left", ["a", "city"]))])
    assert fit(table, kernels=[RBF(view=["a", "b"])]).converged_  # what no kernel reads does not matter


def test_dates_categories_and_lists_are_named():
    dates = pd.date_range("2020", periods=N)
    with pytest.raises(ValueError, match=r"column 'when' holds 2020-01-01 .*Timestamp \(row 0\)"):
        fit(FRAME.assign(when=dates))
    with pytest.raises(ValueError, match=r"column 'when' holds 2020-01-01.*datetime64 \(row 0\)"):
        fit(pd.DataFrame({"when": dates}))
    with pytest.raises(ValueError, match=r"column 'kind' holds 'u' \(row 0\)"):
        fit(FRAME.assign(kind=pd.Categorical(["u", "v"] * (N // 2))))
    table = pa.Table.from_pandas(FRAME)
    with pytest.raises(ValueError, match=r"column 'when' holds values of type timestamp"):
        fit(table.append_column("when", pa.array(dates)))
    with pytest.raises(ValueError, match=r"column of lists of varying length, 'lists'"):
        fit(table.append_column("lists", pa.array([[1.0]] * N)))


def test_missing_values_of_tables_are_named():
    values = [float(k) for k in range(N)]
    values[5] = None
    for table in (
        FRAME.assign(d=values),
        FRAME.assign(d=pd.array(values, "Int64")),  # pandas.NA
        pa.Table.from_pandas(FRAME).append_column("d", pa.array(values)),
    ):
        with pytest.raises(ValueError, match=r"X contains NaN in column 'd' \(row 5\)"):
            fit(table)
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array([np.nan if k == 9 else 1.0 for k in range(2 * N)]), 2
    )
    with pytest.raises(ValueError, match=r"X contains NaN in column 'v' \(entry 1\) \(row 4\)"):
        fit(pa.table({"a": X[:, 0], "v": vectors}))


# -- masked arrays ---------------------------------------------------------------------------------


def masked(array, row, column):
    mask = np.zeros(np.shape(array), bool)
    mask[row, column] = True
    return np.ma.masked_array(array, mask)


@pytest.mark.parametrize(
    "array", [X, X.astype(np.float32), np.arange(3 * N).reshape(N, 3)], ids=["float64", "float32", "whole"]
)
def test_masked_entries_are_missing_values(array):
    with pytest.raises(ValueError, match=r"X contains NaN in column 1 \(row 4\)"):
        fit(masked(array, 4, 1))
    with pytest.raises(ValueError, match=r"view 'v' of X contains NaN in column 1 \(row 4\)"):
        fit({"v": masked(array, 4, 1)}, kernels=[RBF(view="v")])
    with pytest.raises(ValueError, match=r"X contains NaN in column 1 \(row 0\)"):
        fit(array).predict(masked(array[:2], 0, 1))
    assert np.isnan(RBF()(masked(array, 4, 1))[4, :4]).all()
    assert fit(masked(array, 4, 1), kernels=[RBF(view=[0, 2])]).converged_  # nobody reads the masked column


def test_a_mask_without_masked_entries_is_none():
    plain = np.ma.masked_array(X, np.zeros_like(X, bool))
    assert apart(fit(plain).decision_function(plain), fit().decision_function(X)) < 1e-12


@pytest.mark.parametrize("kind", [MKLClassifier, MKLRegressor])
def test_masked_labels_and_matrices(kind):
    y = np.ma.masked_array(Y, np.arange(N) == 7)
    for inputs, kernels in ((X, BANK), (gram(BANK, X), "precomputed")):
        with pytest.raises(
            ValueError, match=r"y contains NaN \(a masked value\) in row 7; labels must be known"
        ):
            fit(inputs, y, kind, kernels=kernels)
    stack = np.ma.masked_array(gram(BANK, X))
    stack[3, 5, 1] = np.ma.masked
    with pytest.raises(ValueError, match=r"NaN or infinity: kernel 1, entry \(3, 5\)"):
        fit(stack, Y, kind, kernels="precomputed")


# -- squares that overflow -------------------------------------------------------------------------


def large(value, row=11, column=2):
    array = X.copy()
    array[row, column] = value
    return array


@pytest.mark.parametrize("value", [1e160, -1e160])
@pytest.mark.parametrize(
    "kernels",
    [
        None,
        [RBF(0.1)],
        [Linear()],
        [Laplacian(), Polynomial()],
        [RBF(0.1, view=[1]) + Linear()],
        [2.0 * (RBF(view=[1]) * Linear())],
    ],
    ids=str,
)
def test_squares_beyond_float64_are_an_error_before_the_start(value, kernels):
    shown = f"{value:.0e}"
    for array in (large(value), sp.csr_matrix(large(value))):
        with warnings.catch_warnings(), pytest.raises(ValueError) as caught:
            warnings.simplefilter("error")
            fit(array, kernels=kernels)
        assert f"X contains {shown} in column 2 (row 11), too large for" in str(caught.value)
    with pytest.raises(ValueError, match="too large for"):
        fit(kernels=kernels).predict(large(value))


def test_names_and_files(tmp_path):
    with pytest.raises(ValueError, match=r"contains 1e\+160 in column 'c' \(row 11\), too large for RBF"):
        fit(pd.DataFrame(large(1e160), columns=list("abc")))
    pq.write_table(
        pa.table({**dict(zip("abc", large(1e160).T, strict=True)), "y": Y}),
        tmp_path / "t.parquet",
        row_group_size=7,
    )
    with pytest.raises(ValueError, match=r"contains 1e\+160 in column 'c' \(row 11\), too large for RBF"):
        fit(tmp_path / "t.parquet", "y")
    with pytest.raises(
        ValueError, match=r"view 'h' of X contains 1e\+160 in column 2 \(row 11\), too large for Chi2"
    ):
        fit({"h": np.abs(large(1e160))}, kernels=[Chi2(view="h")])


def test_powers_of_products_too():
    assert fit(X * 1e30, kernels=[Linear()], normalize="multiplicative").converged_
    with pytest.raises(ValueError, match=r"e\+60 in column . \(row \d+\), too large for Polynomial"):
        fit(X * 1e60, kernels=[Polynomial(degree=3, coef0=1.0)])


def test_large_numbers_that_fit_are_welcome():
    for scale in (1e100, 1e150):
        fitted = fit(X * scale, kernels=[RBF(gamma=0.1 / scale**2)])
        assert fitted.duality_gap_ <= 1e-3
        assert (
            apart(fitted.decision_function(X * scale), fit(kernels=[RBF(gamma=0.1)]).decision_function(X))
            < 1e-6
        )
    assert (
        fit(X * 1e160, kernels=[Laplacian(gamma=1e-160)]).duality_gap_ <= 1e-3
    )  # sums of differences, no squares


@pytest.mark.parametrize("given", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [RBF(gamma=1e-45), Linear()], ids=str)
def test_squares_beyond_float32(given, kernel, monkeypatch):
    monkeypatch.setattr("raymkl.models.description.problem.SMALL_PROBLEM", 0)  # "auto" would be float32
    array = (X * 1e22).astype(given)
    more = {"kernels": [kernel], "normalize": "multiplicative"}
    expected = fit(array.astype(np.float64), dtype="float64", **more)
    for dtype in ("auto", "float64"):
        found = fit(array, dtype=dtype, **more)
        assert np.isfinite(found.duality_gap_) and found.duality_gap_ <= 1e-3
        assert apart(found.decision_function(array), expected.decision_function(array)) < 1e-2
    with pytest.raises(
        ValueError, match=r"dtype='float32', but X contains numbers of .*too large for .*'auto' or 'float64'"
    ):
        fit(array, dtype="float32", **more)
    assert fit(X.astype(given), dtype="float32", **more).converged_
