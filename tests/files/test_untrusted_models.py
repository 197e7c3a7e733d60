"""Model files are data: whatever is in them, loading ends in the model that was saved or in a clear
ValueError.
"""

import json
import re
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import raymkl
from raymkl import LocalizedMKLClassifier, MKLClassifier, MKLRegressor
from raymkl.data.plain_arrow import DAMAGE, open_plain, plain_array
from raymkl.kernels import RBF, Linear, Spectrum, rbf
from raymkl.models.table_model import Preparation, TableModel
from tests.files.damage import damaged, table_of, written
from tests.reference import noisy_problem

X, Y = noisy_problem(40, seed=51)
X_TEST, _ = noisy_problem(10, seed=52)
THREE = np.arange(40) % 3
DNA = np.array(["".join(np.random.default_rng(i).choice(list("ACGT"), 12)) for i in range(40)], object)
MODELS = {
    "dense": lambda: (MKLClassifier(kernels=rbf([0.1, 1.0]), engine="local").fit(X, Y), X_TEST),
    "sparse": lambda: (
        MKLClassifier(kernels=[RBF() + Linear(), RBF()], engine="local").fit(sp.csr_matrix(X), THREE),
        sp.csr_matrix(X_TEST),
    ),
    "table": lambda: (
        TableModel(
            MODELS["dense"]()[0],
            Preparation({None: ["a"]}, {"a": 6}, {"a": np.zeros(6)}, {"a": np.ones(6)}, target="label"),
        ),
        {"a": X_TEST},
    ),
    "localized": lambda: (LocalizedMKLClassifier(kernels=rbf([0.1, 1.0]), engine="local").fit(X, Y), X_TEST),
    "folds": lambda: (
        MKLClassifier(
            kernels=rbf([0.1, 1.0]), probability="isotonic", conformal=True, cv=2, engine="local"
        ).fit(X, THREE),
        X_TEST,
    ),
    "strings": lambda: (
        MKLRegressor(kernels=[Spectrum(2), Spectrum(3)], engine="local").fit(DNA, Y.astype(float)),
        DNA[:10],
    ),
}


def outputs(model, rows):
    if hasattr(model, "predict_set"):
        return np.hstack([model.decision_function(rows), model.predict_proba(rows), model.predict_set(rows)])
    return model.decision_function(rows) if hasattr(model, "decision_function") else model.predict(rows)


@pytest.mark.parametrize("name", MODELS)
def test_damaged_models_are_refused_or_unharmed(name, tmp_path):
    model, rows = MODELS[name]()
    path, want, refused, rng = tmp_path / "fuzzed", outputs(model, rows), 0, np.random.default_rng(len(name))
    model.save(path)
    whole = path.read_bytes()
    np.testing.assert_array_equal(outputs(raymkl.load(path), rows), want)
    for _ in range(200):
        path.write_bytes(damaged(whole, rng))
        try:
            found = raymkl.load(path)
        except ValueError as error:
            assert "fuzzed" in str(error) and len(str(error)) < 1000
            refused += 1
        else:
            np.testing.assert_array_equal(outputs(found, rows), want)  # padding was hit
    assert refused > 150


def test_damage_of_the_digest_hides_no_other(tmp_path):
    """Whatever happens to the digest or its name, a change elsewhere does not pass as that of an old file
    without one.
    """
    model, _ = MODELS["dense"]()
    model.save(tmp_path / "fuzzed")
    whole = (tmp_path / "fuzzed").read_bytes()
    coefficients, name = (
        whole.index(model.dual_coef_.tobytes()),
        whole.rindex(b"raymkl-digest"),
    )  # that of the footer counts
    for at in range(name - 4, name + len("raymkl-digest")):  # four bytes before it say its length
        for change in (1, 2, 0x20, 0x80, whole[at]):
            data = bytearray(whole)
            data[at] ^= change
            data[coefficients] ^= 1
            (tmp_path / "fuzzed").write_bytes(data)
            with pytest.raises(ValueError, match="fuzzed"):
                raymkl.load(tmp_path / "fuzzed")


@pytest.mark.parametrize(
    "metadata", [{}, {b"raymkl-digest": b""}, {b"raymkl": b""}, {b"pandas": b"{}"}], ids=str
)
def test_other_metadata_are_refused(metadata, tmp_path):
    MODELS["dense"]()[0].save(tmp_path / "good")
    table = table_of(tmp_path / "good")
    written(
        table.replace_schema_metadata({**table.schema.metadata, **metadata} if metadata else {}),
        tmp_path / "changed",
    )
    with pytest.raises(ValueError, match="changed"):
        raymkl.load(tmp_path / "changed")


@pytest.mark.parametrize("name", MODELS)
def test_changed_descriptions_without_a_digest(name, tmp_path):
    """Old files have no digest: then the checks of every part stand alone, and what is loaded is a model."""
    model, _ = MODELS[name]()
    model.save(tmp_path / "good")
    table, rng = table_of(tmp_path / "good"), np.random.default_rng(10 + len(name))
    text = table.schema.metadata[b"raymkl"]
    letters = b'0123456789-.,:[]{}"eEnul '
    for _ in range(150):
        changed = bytearray(text)
        for at in rng.integers(len(text), size=rng.integers(1, 3)):
            changed[at] = letters[rng.integers(len(letters))]
        written(table.replace_schema_metadata({"raymkl": bytes(changed)}), tmp_path / "changed")
        try:
            found = raymkl.load(tmp_path / "changed")
        except ValueError as error:
            assert "changed" in str(error)
        else:
            assert type(found) is type(model)


# Stands for text that is put into the JSON afterwards: the encoder itself ends at Python's limit of the
# depth.
DEEP = "@deep@"


def attribute(name, value):
    return lambda head: head["attributes"].update({name: value})


def parameter(name, value):
    return lambda head: head["params"].update({name: value})


def array(dtype="<f8", shape=(1, 40)):
    return lambda head: head["attributes"]["dual_coef_"].update(
        dtype=dtype, shape=list(shape) if isinstance(shape, tuple) else shape
    )


def kernel(name, **params):
    return parameter("kernels", [{"kernel": name, "params": params}])


def twice(head):
    head["attributes"]["intercept_"] = head["attributes"]["dual_coef_"]


CRAFTED = {
    "huge shape": (array(shape=(2**62, 2**62)), "bytes"),
    "shape larger than memory": (array(shape=(1, 2**50)), "bytes"),
    "negative shape": (array(shape=(-1, -40)), "shape"),
    "shape of floats": (array(shape=(1.0, 40)), "shape"),
    "shape of truth values": (array(shape=(True, 40)), "shape"),
    "shape that is text": (array(shape="40"), "shape"),
    "many dimensions": (array(shape=(1,) * 60 + (40,)), "shape"),
    "empty and huge": (array(shape=(0, 10**30)), ""),
    "object type": (array("O"), "type"),
    "object type by letters": (array("|O8"), "type"),
    "type by name": (array("object"), "type"),
    "structure": (array("<f8,<i4"), "type"),
    "raw bytes": (array("|V8"), "type"),
    "type of no size": (array("<U0", (10**9,)), "bytes"),
    "type that does not exist": (array("<f7"), ""),
    "type that is a list": (array(["a", "<f8"]), "type"),
    "type that is a number": (array(8), "type"),
    "text that is none": (array("<U2"), "no letter"),
    "truth that is none": (array("|b1", (1, 320)), "truth"),
    "an array twice": (twice, "array"),
    "lists nested too deep for Python": (attribute("history_", DEEP + "[" * 5000 + "]" * 5000), "recursion"),
    "lists nested too deep": (attribute("history_", DEEP + "[" * 250 + "]" * 250), "nested"),
    "tuples nested too deep": (attribute("history_", DEEP + '{"tuple":[' * 220 + "1" + "]}" * 220), "nested"),
    "kernels nested too deep": (
        parameter(
            "kernels", DEEP + '{"kernel":"Scaled","params":{"scale":1,"kernel":' * 220 + "1" + "}}" * 220
        ),
        "nested",
    ),
    "unknown entry": (attribute("history_", {"reduce": ["os.system", "true"]}), "reduce"),
    "unknown kernel": (kernel("Custom", function="os.system"), "Custom"),
    "kernel that is a list": (parameter("kernels", [{"kernel": ["RBF"], "params": {}}]), ""),
    "unknown parameter of a kernel": (kernel("RBF", function="os.system"), "function"),
    "parameters of a kernel that are a list": (parameter("kernels", [{"kernel": "RBF", "params": [1]}]), ""),
    "bad parameter of a kernel": (kernel("RBF", gamma=-1), "gamma"),
    "parameter of a kernel that takes for ever": (kernel("Spectrum", k=10**15), "too large"),
    "a method for an attribute": (attribute("predict", 1), "predict"),
    "a class for an attribute": (attribute("__class__", {"kernel": "RBF", "params": {}}), "__class__"),
    "a dict for an attribute": (attribute("__dict__", {"dict": []}), "__dict__"),
    "a parameter for an attribute": (attribute("C", 3.0), "'C'"),
    "dict with keys that cannot be": (attribute("history_", {"dict": [[{"dict": []}, 1]]}), ""),
    "slice of dicts": (attribute("history_", {"slice": [{}, 1, 2]}), "slice"),
    "float that is code": (attribute("history_", {"float": "__import__('os')"}), "float"),
    "coefficients that are a list": (attribute("dual_coef_", [[1.0]]), ""),
    "coefficients of another shape": (array(shape=(40, 1)), "fit together"),
    "no coefficients": (lambda head: head["attributes"].pop("dual_coef_"), "dual_coef_"),
    "no kernels": (attribute("kernels_", []), "kernels_"),
    "kernels that are numbers": (attribute("kernels_", [1, 2]), "kernels_"),
    "support vectors from nowhere": (attribute("_n_train", 3), "support_"),
    "number of rows that is text": (attribute("_n_train", "60"), ""),
    "no rows": (lambda head: head["attributes"].pop("_support_rows"), "_support_rows"),
    "no weights": (lambda head: head["attributes"].pop("_effective_weights"), "_effective_weights"),
    "an expansion of its own": (
        lambda head: head["attributes"].update(expansion_=head["attributes"].pop("_support_rows")),
        "_support_rows",
    ),
    "gates from nowhere": (attribute("_gate_of_entry", [0, 0]), "_gate_of_entry"),
    "a matrix of which nothing is known": (
        attribute("kernels_", [{"kernel": "Precomputed", "params": {}}] * 2),
        "_stack_depths",
    ),
    "rows that are a number": (attribute("_support_rows", {"dict": [[None, 7]]}), ""),
    "bad ray parameters": (parameter("ray_params", {"ray_params": {"num_shards": -1}}), "num_shards"),
    "format that is text": (lambda head: head.update(format="1"), "description"),
    "format that is true": (lambda head: head.update(format=True), "description"),
    "format zero": (lambda head: head.update(format=0), "format 0"),
    "class that is a list": (lambda head: head.update({"class": ["MKLClassifier"]}), "description"),
    "parameters that are a list": (lambda head: head.update(params=[1]), ""),
    "unknown part": (lambda head: head.update(code="import os"), "code"),
    "preparation that is a number": (lambda head: head.update(preparation=3), ""),
    "preparation of numbers": (
        lambda head: head.update(preparation={"views": {"dict": [[3, [4]]]}, "widths": {"dict": []}}),
        "view",
    ),
    "widths that are text": (
        lambda head: head.update(
            preparation={"views": {"dict": [["v", ["a"]]]}, "widths": {"dict": [["a", "6"]]}}
        ),
        "width",
    ),
}


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "good"
    MODELS["dense"]()[0].save(path)
    return path


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_models_are_refused_without_allocating(name, model_file, tmp_path):
    change, message = CRAFTED[name]
    table = table_of(model_file)
    head = json.loads(table.schema.metadata[b"raymkl"])
    change(head)
    written(table.replace_schema_metadata({"raymkl": text_of(head)}), tmp_path / "crafted")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"crafted.*{message}"):
            raymkl.load(tmp_path / "crafted")
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def text_of(head):
    """JSON, with marked text put in as it is."""
    return re.sub(
        f'"{DEEP}((?:[^"\\\\]|\\\\.)*)"', lambda found: json.loads(f'"{found[1]}"'), json.dumps(head)
    )


def test_json_that_is_nothing_but_brackets(model_file, tmp_path):
    table = table_of(model_file).replace_schema_metadata({"raymkl": "[" * 200_000})
    with pytest.raises(ValueError, match="deep is not a raymkl model"):
        raymkl.load(written(table, tmp_path / "deep"))


def test_indices_of_a_sparse_matrix_stay_inside(tmp_path):
    MODELS["sparse"]()[0].save(tmp_path / "good")
    table = table_of(tmp_path / "good")
    head = json.loads(table.schema.metadata[b"raymkl"])
    rows = head["attributes"]["_support_rows"]["dict"][0][1]
    rows["shape"][1] = 2
    with pytest.raises(ValueError, match="crafted is damaged"):
        raymkl.load(
            written(table.replace_schema_metadata({"raymkl": json.dumps(head)}), tmp_path / "crafted")
        )


def test_tables_that_no_model_has(model_file, tmp_path):
    good = table_of(model_file)
    metadata, names, data = good.schema.metadata, good["name"], good["data"]
    for table in (
        good.append_column("more", names),
        pa.table({"name": names, "data": data.cast(pa.binary())}),
        pa.table({"name": pa.array([None, *names.to_pylist()[1:]], pa.string()), "data": data}),
        pa.table({"name": names, "data": pa.array([None, *data.to_pylist()[1:]], pa.large_binary())}),
        pa.table({"name": pa.array(["array0"] * len(names)), "data": data}),
        pa.table({"name": names.dictionary_encode(), "data": data}),
    ):
        with pytest.raises(ValueError, match="strange is not a raymkl model"):
            raymkl.load(written(table.replace_schema_metadata(metadata), tmp_path / "strange"))
    for codec in ("zstd", "lz4"):
        with pytest.raises(ValueError, match=r"small is not a raymkl model.*compressed"):
            raymkl.load(written(good, tmp_path / "small", compression=codec))


def test_types_of_other_libraries_are_not_built(model_file, tmp_path):
    """Some of them unpickle what a file says about them, as soon as a schema is read."""
    built = []

    class Dangerous(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.string(), "raymkl.test.dangerous")

        def __arrow_ext_serialize__(self):
            return b"anything"

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type, serialized):
            built.append(serialized)
            return cls()

    names = table_of(model_file)["name"].combine_chunks()
    table = table_of(model_file).set_column(0, "name", pa.ExtensionArray.from_storage(Dangerous(), names))
    pa.register_extension_type(Dangerous())
    try:
        path = written(table, tmp_path / "strange")
        table_of(path)
        assert built  # so it would be, by the plain reader
        built.clear()
        with pytest.raises(ValueError, match=r"strange is not a raymkl model.*raymkl\.test\.dangerous"):
            raymkl.load(path)
        assert not built
    finally:
        pa.unregister_extension_type("raymkl.test.dangerous")


def test_what_can_be_saved_can_be_loaded(tmp_path):
    """The limit of the depth holds for writing too."""
    deep = RBF()
    for _ in range(250):
        deep = deep + Linear(view=0)
    model = MKLClassifier(kernels=[RBF(), Linear()], engine="local").fit(X, Y)
    model.kernels = [deep]
    with pytest.raises(ValueError, match="nested"):
        model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "dtype", ["<f4", ">f8", "|b1", "<i8", "|u1", "<c16", "<U3", ">U3", "|S2", "<M8[ns]", "<m8"]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_plain_arrays_come_back(dtype, shape):
    array = np.ones(shape, np.dtype(dtype).newbyteorder("=").str if dtype[1] not in "mM" else "i8").astype(
        dtype
    )
    again = plain_array(pa.py_buffer(array.tobytes()), array.dtype.str, list(shape))
    assert again.dtype == array.dtype and again.shape == shape and again.flags.writeable
    np.testing.assert_array_equal(again, array)


def test_random_bytes_are_no_arrow_file():
    """The look before Arrow's own, on footers that are anything."""
    rng = np.random.default_rng(0)
    for size in rng.integers(4, 400, size=300).tolist():
        footer = rng.integers(0, rng.choice([4, 40, 256]), size=size).astype(np.uint8).tobytes()
        data = b"ARROW1\0\0" + footer + len(footer).to_bytes(4, "little") + b"ARROW1"
        with pytest.raises(DAMAGE):
            open_plain(pa.py_buffer(data)).read_all().validate(full=True)
