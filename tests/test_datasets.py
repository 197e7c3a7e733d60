"""FASTA files and made-up sequences."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl.datasets import make_motif_sequences, read_fasta

TEXT = ">first some words\nACGT\nacgt\n\n; an old comment\n>second\nNN--*\n"
NAMES, SEQUENCES = ["first some words", "second"], ["ACGTacgt", "NN--*"]


def test_plain_and_compressed_files(tmp_path):
    plain, packed = tmp_path / "a.fasta", tmp_path / "a.fasta.gz"
    plain.write_text(TEXT)
    packed.write_bytes(gzip.compress(TEXT.encode()))
    assert read_fasta(plain) == read_fasta(str(packed)) == (NAMES, SEQUENCES)


def test_line_ends_of_other_systems(tmp_path):
    (tmp_path / "a").write_bytes(TEXT.replace("\n", "\r\n").encode())
    assert read_fasta(tmp_path / "a") == (NAMES, SEQUENCES)


@given(
    st.lists(
        st.tuples(st.text("abcXYZ019_|", min_size=1), st.text("ACGTNacgt", min_size=1, max_size=200)),
        min_size=1,
    ),
    st.integers(1, 70),
)
def test_whatever_is_written_is_read(tmp_path_factory, records, width):
    path = tmp_path_factory.mktemp("fasta") / "file"
    lines = []
    for name, sequence in records:
        lines += [f">{name}", *(sequence[i : i + width] for i in range(0, len(sequence), width))]
    path.write_text("\n".join(lines))
    assert read_fasta(path) == ([name for name, _ in records], [sequence for _, sequence in records])


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "no sequences"),
        (b"\n\n", "no sequences"),
        (b"ACGT\n", "line 1"),
        (b">a\n>b\nACGT\n", "line 2.*'a'"),
        (b">a\nACGT\n>b\n", "'b'"),
        (b">\nACGT\n", "without a name"),
        (b">a\nAC GT\n", "line 2"),
        (b">a\nACG7\n", "line 2"),
        (b">a\nA\xc3\x84\n", "line 2"),
        (b"\xff\xfe\x00>", "not a text file"),
        (gzip.compress(TEXT.encode(), mtime=0)[:-9], "gzip"),
    ],
)
def test_malformed_files(tmp_path, data, word):
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(ValueError, match=word):
        read_fasta(tmp_path / "bad")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_fasta(tmp_path / "absent")


def test_motifs_stand_where_they_are_planted():
    sequences, labels = make_motif_sequences(
        50, 40, motifs=["GATTACA", "TTTT"], jitter=3, noise=0.0, random_state=1
    )
    assert len(sequences) == 50 and {len(sequence) for sequence in sequences} == {40}
    assert sorted(np.unique(labels)) == [-1, 1] and (labels == 1).sum() == 25
    for sequence, label in zip(sequences, labels, strict=True):
        assert set(sequence) <= set("ACGT")
        if label == 1:
            assert "GATTACA" in sequence[:20] and "TTTT" in sequence[20:]


def test_seeds_repeat_and_labels_flip():
    assert make_motif_sequences(20, random_state=3)[0] == make_motif_sequences(20, random_state=3)[0]
    assert make_motif_sequences(20, random_state=3)[0] != make_motif_sequences(20, random_state=4)[0]
    straight, flipped = (make_motif_sequences(300, flip=flip, random_state=0)[1] for flip in (0.0, 0.2))
    assert 30 <= (straight != flipped).sum() <= 90


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"n": 0}, "n must"),
        ({"length": 0}, "length"),
        ({"length": 12}, "too short"),
        ({"jitter": -1}, "jitter"),
        ({"noise": 2}, "noise"),
        ({"flip": -0.1}, "flip"),
        ({"motifs": "TATA"}, "motifs"),
        ({"motifs": []}, "motifs"),
        ({"alphabet": ""}, "alphabet"),
    ],
)
def test_arguments_out_of_range(arguments, word):
    with pytest.raises(ValueError, match=word):
        make_motif_sequences(**arguments)
