"""How the gallery runs the examples: in their quick forms, into a folder of their own, whose pictures it
shows.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from sphinx_gallery.scrapers import figure_rst

OUT = Path(tempfile.mkdtemp(prefix="raymkl_gallery_"))
atexit.register(shutil.rmtree, OUT, ignore_errors=True)

# Options that make an example quick; one that is not here is run as it is.
QUICK = {
    "localized": ["--splits", "2", "--toy-rows", "300"],
    "mnist_ten_classes": ["--n", "1000", "--kernels", "10"],
    "multiview_digits": ["--n", "500"],
    "runtime": ["--quick"],
    "sparsity_toy": ["--quick", "--sets", "2", "--jobs", "1"],
    "splice": ["--demo"],
    "tss": ["--demo"],
}


def arguments(gallery_conf: dict, script_vars: dict) -> list[str]:
    """What an example finds in sys.argv behind its name."""
    name = Path(script_vars["src_file"]).stem
    return [] if name == "quickstart" else [*QUICK.get(name, []), "--out", str(OUT / name)]


def pictures(block: tuple, block_vars: dict, gallery_conf: dict) -> str:
    """Pictures that an example has written since its last block, as the text that shows them."""
    name, shown = Path(block_vars["src_file"]).stem, []
    for path in sorted((OUT / name).rglob("*.png"), key=lambda path: path.stat().st_mtime):
        place = next(block_vars["image_path_iterator"])
        shutil.move(path, place)
        shown.append(place)
    return figure_rst(shown, gallery_conf["src_dir"])
