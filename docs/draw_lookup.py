"""Redraw the pictures of docs/lookup.md; the examples draw them.

Run:    python docs/draw_lookup.py
Needs:  matplotlib; half a minute, alone on the machine, since one picture shows measured times.
Prints: what the examples print.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = ("lookup_is_matmul", "lookup_cost", "transformer_input")


def main() -> None:
    """Run the examples with docs/pictures as their folder."""
    sys.path.insert(0, str(HERE.parent / "examples"))
    for name in EXAMPLES:
        importlib.import_module(name).main(HERE / "pictures")


if __name__ == "__main__":
    main()
