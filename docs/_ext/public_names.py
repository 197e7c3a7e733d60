"""The page of the API: every name in `__all__` of every public module, each with a page of its own.

The page is written when the site is built, so that a name that is new in `__all__` is in it without anybody's
doing.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import raymkl

# Public modules and what they are about; one that is not there (yet) is left out.
MODULES = {
    "raymkl": "Models, sessions, files",
    "raymkl.kernels": "Kernels",
    "raymkl.norms": "Norms over kernels",
    "raymkl.search": "Search",
    "raymkl.evaluate": "Evidence",
    "raymkl.diagnostics": "Looking at models and sets of kernels",
    "raymkl.plot": "Pictures",
    "raymkl.metrics": "Scores",
    "raymkl.datasets": "Data",
    "raymkl.baselines": "Solvers of others",
    "raymkl.serve": "Serving a model",
}


def module_of(name: str):
    """A public module by its name, or None."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(raymkl, name.partition(".")[2], None)


def listed(modules: dict[str, str] = MODULES) -> dict[str, list[str]]:
    """Full names of the public classes and functions by module; one that two modules offer stands under the
    first.
    """
    seen: set[int] = set()
    found: dict[str, list[str]] = {}
    for name in modules:
        for one in getattr(module_of(name), "__all__", ()):
            thing = getattr(module_of(name), one)
            if not inspect.ismodule(thing) and id(thing) not in seen:
                seen.add(id(thing))
                found.setdefault(name, []).append(f"{name}.{one}")
    return found


def page() -> str:
    """The page as reStructuredText."""
    lines = [
        "API reference",
        "=============",
        "",
        "Every public name. Names are imported as they are written here.",
        "",
    ]
    for module, names in listed().items():
        title = f"{MODULES[module]}: ``{module}``"
        lines += [
            title,
            "-" * len(title),
            "",
            ".. autosummary::",
            "   :toctree: generated",
            "   :nosignatures:",
            "",
        ]
        lines += [f"   {name}" for name in names]
        lines += [""]
    return "\n".join(lines)


def write(app, config) -> None:
    place = Path(app.srcdir) / "api.rst"
    text = page()
    if not place.exists() or place.read_text(encoding="utf-8") != text:
        place.write_text(text, encoding="utf-8")
    # Pages of names that are gone since the last build.
    known = {name for names in listed().values() for name in names}
    for old in (Path(app.srcdir) / "generated").glob("raymkl*.rst"):
        if old.stem not in known:
            old.unlink()


def not_ours(app, kind, name, thing, skip, options):
    """Methods that scikit-learn adds say in its own documentation what they do."""
    home = getattr(thing, "__module__", None) or type(thing).__module__
    if kind == "class" and (
        home.split(".")[0] not in ("raymkl", "builtins")
        or (name.startswith("set_") and name.endswith("_request"))
    ):
        return True
    return skip


def setup(app):
    app.connect("config-inited", write)  # before anybody looks for pages
    app.connect("autodoc-skip-member", not_ours)
    return {"parallel_read_safe": True}
