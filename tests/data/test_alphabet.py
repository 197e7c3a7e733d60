"""Alphabets, and sequences of any container as rows of bytes."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from raymkl import kernels
from raymkl.data.alphabet import ALPHABETS, UNKNOWN, bits_per_letter, code_table, letters_of
from raymkl.data.strings import lengths_of, letters_and_starts, looks_like_strings, pack, select_strings


def test_names_and_letters_of_alphabets_are_the_same_thing():
    assert letters_of("dna") == letters_of("DNA") == letters_of("TGAC") == "ACGT"
    assert letters_of("rna") == "ACGU"
    assert len(letters_of("protein")) == 20
    assert letters_of("BAB") == "AB"


@pytest.mark.parametrize("alphabet", ["amino", "", "ÄÖ", "A C", "dnaa"])
def test_alphabets_that_are_none_are_refused(alphabet):
    with pytest.raises(ValueError, match="alphabet"):
        letters_of(alphabet)


@pytest.mark.parametrize("alphabet", [None, 4, ["A", "C"]])
def test_alphabets_must_be_strings(alphabet):
    with pytest.raises(TypeError, match="alphabet"):
        kernels.Spectrum(k=2, alphabet=alphabet)


def test_codes_fold_case_and_leave_others_out():
    table = code_table("ACGT")
    assert [table[ord(letter)] for letter in "ACGTacgt"] == [0, 1, 2, 3] * 2
    assert all(table[ord(letter)] == UNKNOWN for letter in "NnU-\0 ")
    assert (code_table("01")[[ord("0"), ord("1")]] == [0, 1]).all()


def test_bits_tell_letters_apart():
    assert [bits_per_letter(letters) for letters in ("A", "AB", "ABC", "ACGT", ALPHABETS["protein"])] == [
        1,
        1,
        2,
        2,
        5,
    ]


def unpacked(rows):
    data, starts = letters_and_starts(rows)
    return [bytes(data[a:b]).rstrip(b"\0").decode("latin1") for a, b in pairwise(starts)]


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "array U": np.array,
    "array S": lambda strings: np.array([string.encode() for string in strings]),
    "array O": lambda strings: np.array(strings, object),
    "column of an array": lambda strings: np.array(strings, object)[:, None],
    "bytes": lambda strings: [string.encode() for string in strings],
    "series": pd.Series,
    "series O": lambda strings: pd.Series(strings, dtype=object),
    "series string": lambda strings: pd.Series(strings, dtype="string"),
    "category": lambda strings: pd.Series(strings, dtype="category"),
    "arrow": pa.array,
    "large arrow": lambda strings: pa.array(strings, pa.large_string()),
    "view arrow": lambda strings: pa.array(strings, pa.string_view()),
    "dictionary": lambda strings: pa.array(strings).dictionary_encode(),
    "sliced arrow": lambda strings: pa.array(["xx", *strings, "yy"]).slice(1, len(strings)),
    "chunks": lambda strings: pa.chunked_array([pa.array(strings[:1]), pa.array(strings[1:], pa.string())]),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    "strings",
    [["ACGT", "acgN", "TTTT"], ["A", "CGTACG", "TT"], ["A"] * 20 + ["C" * 500]],
    ids=["equal", "ragged", "long"],
)
def test_every_container_gives_the_same_rows(container, strings):
    rows = select_strings(CONTAINERS[container](strings), None, None)
    assert unpacked(rows) == strings
    assert lengths_of(rows).tolist() == list(map(len, strings))
    assert rows.dtype == np.uint8


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=9),
        min_size=1,
        max_size=9,
    )
)
def test_one_byte_stands_for_one_character(strings):
    """Also characters of several bytes keep their place, so that what follows them still matches."""
    rows = pack(strings, "X", None)
    assert lengths_of(rows).tolist() == list(map(len, strings))
    for got, want in zip(unpacked(rows), strings, strict=True):
        assert len(got) == len(want)
        assert all(a == b for a, b in zip(got, want, strict=True) if "A" <= b <= "z")


def test_equal_lengths_are_read_from_arrows_memory():
    array = pa.array(["ACGT", "TTTT", "GGGG"])
    rows = pack(array, "X", None)
    assert np.shares_memory(rows, np.frombuffer(array.buffers()[2], np.uint8))


def test_very_different_lengths_are_not_padded():
    rows = pack(["A"] * 50 + ["C" * 10_000], "X", None)
    assert sp.issparse(rows)
    assert rows.data.nbytes < 11_000


def test_containers_of_strings_are_told_from_numbers():
    assert (
        looks_like_strings(["A"])
        and looks_like_strings(np.array(["A"]))
        and looks_like_strings(pd.Series(["A"]))
    )
    assert looks_like_strings(pa.array(["A"])) and looks_like_strings(pa.chunked_array([["A"]]))
    assert (
        not looks_like_strings([[1.0]])
        and not looks_like_strings(np.ones((2, 2)))
        and not looks_like_strings(pd.Series([1.0]))
    )
    assert not looks_like_strings([])


@pytest.mark.parametrize(
    ("X", "word"),
    [
        (["AC", "", "GT"], "empty string in row 1"),
        (np.array(["AC", "", "GT"]), "empty string in row 1"),
        (["AC", None], "missing string in row 1"),
        (pd.Series(["AC", None]), "missing string in row 1"),
        (["AC", 3], "int in row 1"),
        (np.ones((4, 2)), "strings"),
        (np.ones(4), "strings"),
        ([1.0, 2.0], "strings"),
        (pa.array([1, 2]), "strings"),
        (sp.eye(3).tocsr(), "strings"),
    ],
)
def test_what_is_no_string_is_named(X, word):
    with pytest.raises(ValueError, match=word):
        kernels.Spectrum(k=1)(X)


def test_views_are_columns_keys_and_pairs():
    frame = pd.DataFrame({"left": ["AC", "GT"], "right": ["AA", "AA"], "number": [1.0, 2.0]})
    left, right = kernels.Spectrum(k=1, view="left"), kernels.Spectrum(k=1, view="right")
    table = pa.Table.from_pandas(frame)
    for X in (
        frame,
        table,
        frame.to_dict("list"),
        {"left": pa.array(["AC", "GT"]), "right": np.array(["AA", "AA"])},
    ):
        assert left(X).tolist() == [[2, 0], [0, 2]]
        assert right(X).tolist() == [[4, 4], [4, 4]]
    assert kernels.Spectrum(k=1, view=0)(frame[["left", "right"]].to_numpy()).tolist() == [[2, 0], [0, 2]]
    assert kernels.Spectrum(k=1, view=["left"])(frame).tolist() == [[2, 0], [0, 2]]
    assert kernels.Spectrum(k=1, view=("inner", "left"))({"inner": frame, "other": frame}).tolist() == [
        [2, 0],
        [0, 2],
    ]
    assert kernels.Spectrum(k=1)(frame[["left"]]).tolist() == [[2, 0], [0, 2]]


@pytest.mark.parametrize(("view", "word"), [("absent", "absent"), (None, "view="), ("number", "strings")])
def test_views_that_are_not_there_or_hold_numbers(view, word):
    frame = pd.DataFrame({"left": ["AC", "GT"], "number": [1.0, 2.0]})
    for X in (frame, pa.Table.from_pandas(frame), {"left": ["AC", "GT"], "number": np.array([1.0, 2.0])}):
        with pytest.raises(ValueError, match=word):
            kernels.Spectrum(k=1, view=view)(X)


def test_a_plain_list_has_no_views():
    with pytest.raises(ValueError, match="no views"):
        kernels.Spectrum(k=1, view="sequence")(["AC"])
