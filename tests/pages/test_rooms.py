"""The rooms of the package: imports point down, no room is crowded, and only public modules stand at the
top.
"""

import ast
from pathlib import Path

import pytest

import raymkl

ROOT = Path(raymkl.__file__).parent
# Imports may only point to lower floors; rooms of one floor do not know each other.
FLOORS = {
    "data": 0,
    "kernels": 1,
    "optim": 1,
    "engine": 2,
    "models": 3,
    "plot": 3,
    "search": 4,
    "inspection": 4,
    "baselines": 4,
    "serve": 4,
    "evaluate": 5,  # above the searches, whose folds it uses
    "cli": 5,
}
PUBLIC = {"datasets", "diagnostics", "io", "metrics", "norms"}
MOST_FILES = 12


def imported(path):
    """Parts of the full names of everything that a file imports, at the top, in functions and for type
    checkers.
    """
    package = ["raymkl", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = node.module.split(".") if node.module else []
            yield from ([*start, *module, alias.name] for alias in node.names)


def mistakes(room, path):
    """Names that a file of a room must not import."""
    for parts in imported(path):
        name = ".".join(parts)
        if parts[0] == "ray" and FLOORS[room] < FLOORS["engine"] and "ray" not in path.stem:
            yield name
        if parts[0] != "raymkl" or len(parts) < 2 or parts[1] == room:
            continue
        if parts[1] in FLOORS:
            if FLOORS[parts[1]] >= FLOORS[room]:
                yield name
        elif FLOORS[room] < FLOORS["models"]:  # the rooms below know nothing of the public modules either
            yield name


@pytest.mark.parametrize("room", FLOORS)
def test_imports_point_down(room):
    files = sorted((ROOT / room).rglob("*.py"))
    assert len(files) > 1
    found = {str(path.relative_to(ROOT)): list(mistakes(room, path)) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "place, line, wrong",
    [
        ("data/rows.py", "from ..kernels.base import Kernel", "raymkl.kernels.base.Kernel"),
        ("kernels/pairs/basis.py", "def f():\n    from ...optim import norms", "raymkl.optim.norms"),
        (
            "kernels/pairs/basis.py",
            "from .statistics import Statistic\nfrom ..base import Kernel\nfrom ...data import views",
            None,
        ),
        ("engine/run.py", "import raymkl.models.base", "raymkl.models.base"),
        ("engine/run.py", "if True:\n    from .. import io", "raymkl.io"),
        ("models/base.py", "from ..io import save\nfrom ..engine import Head", None),
        ("data/rows.py", "import ray.data", "ray.data"),
        ("data/ray_dataset.py", "import ray.data", None),
    ],
)
def test_a_wrong_arrow_is_seen(tmp_path, monkeypatch, place, line, wrong):
    """Also one inside a function, and a relative one from a room within a room."""
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text(line)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert list(mistakes(place.split("/")[0], path)) == ([] if wrong is None else [wrong])


# Names under which fitted models go about in the rooms that look at them.
MODELS = {"model", "fitted", "estimator"}
LOOKERS = [
    ROOT / "inspection",
    ROOT / "plot",
    ROOT / "cli",
    ROOT / "serve",
    *(ROOT / f"{name}.py" for name in PUBLIC),
]


def test_fitted_models_are_read_through_public_attributes():
    """What predictions are made of is `expansion_`; nothing else of a model's inside is looked at from
    outside.
    """
    found = []
    for path in (
        file for place in LOOKERS for file in ([place] if place.suffix else sorted(place.rglob("*.py")))
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and node.attr.startswith("_")
                and not node.attr.startswith("__")
            ):
                owner = (
                    node.value.attr
                    if isinstance(node.value, ast.Attribute)
                    else getattr(node.value, "id", None)
                )
                if owner in MODELS:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {owner}.{node.attr}")
    assert found == []


def test_no_room_is_crowded():
    rooms = [ROOT / room for room in FLOORS]
    rooms += [
        path for room in rooms for path in room.rglob("*") if path.is_dir() and path.name != "__pycache__"
    ]
    crowded = {}
    for room in rooms:
        files = [path.stem for path in room.glob("*.py") if not path.stem.startswith("__")]
        if len(files) > MOST_FILES:
            crowded[str(room.relative_to(ROOT))] = len(files)
    assert crowded == {}


def test_only_public_modules_and_rooms_stand_at_the_top():
    assert {path.stem for path in ROOT.glob("*.py")} == {"__init__", *PUBLIC}
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(FLOORS)
