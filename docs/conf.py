"""How the site is built: `pip install '.[docs]' && sphinx-build -W docs docs/_build`, without a network."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE / "_ext")]
os.environ.setdefault("MPLBACKEND", "agg")

import raymkl  # noqa: E402

project = "raymkl"
author = "raymkl developers"
copyright = author
version = release = raymkl.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "drawn",
    "plain_docstrings",
    "public_names",
]
exclude_patterns = ["_build", "_ext", "_templates", "gallery/**.ipynb", "gallery/**.py"]
templates_path = ["_templates"]

# -- pages -----------------------------------------------------------------------------------------
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
# Formulas are written so that they read well as text; nothing is fetched to draw them.
mathjax_path = "mathjax_is_not_used.js"

# -- API -------------------------------------------------------------------------------------------
autosummary_generate = True
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": True}
add_module_names = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

# -- gallery ---------------------------------------------------------------------------------------
sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    # Those that show something within seconds; the others are in the page of the studies.
    "filename_pattern": "/",
    "ignore_pattern": r"^(?!(quickstart|multiview_digits|mnist_ten_classes|localized|splice|tss|runtime|sparsity_toy)\.py$)",
    "write_computation_times": False,
    "nested_sections": False,
    "reset_argv": "gallery_runs.arguments",
    "image_scrapers": "gallery_runs.pictures",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1,
    "abort_on_example_error": True,
    "show_signature": False,
    "first_notebook_cell": None,
}

# -- the look --------------------------------------------------------------------------------------
html_theme = "furo"
html_title = f"raymkl {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
