"""The house keeps its floors: who may import whom, read from the code's own imports.

The table in docs/design.md is the twin of the tables here; change both together.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "recsys_emb"

# Wings by floor; the rooms of a wing in the order in which they may import each other.
FLOORS: list[dict[str, list[str]]] = [
    {"_version": [], "errors": [], "kernels": ["jit", "hash_table", "sequential", "topk"]},
    {"schema": ["checks", "tables", "columns", "schema"]},
    {"encoding": ["batch", "keys", "vocabulary", "statistics", "sources", "columns", "encoder", "entities", "inference", "loader"]},
    {
        "lookup": [
            "checks", "pooling", "category", "one_hot", "position", "hashed", "quotient_remainder", "pretrained",
            "feature_embedding",
        ]
    },
    {"models": ["matrix_factorization", "baselines"]},
    {
        "training": ["losses", "optim", "sampling", "plan", "sequential", "minibatch", "fitting"],
        "evaluation": ["splitting", "metrics", "ranking", "evaluate"],
        "artifact": [],
    },
    {"recommender": [], "reporting": ["plots"], "integrations": []},
    {"": []},
]  # fmt: skip

# The third-party packages that a wing, or one room of it, may import; numpy is free.
DOORS: dict[str, set[str]] = {
    "errors": {"sklearn"},
    "kernels": {"numba", "llvmlite"},
    "schema": {"pydantic"},
    "encoding": {"pyarrow", "pandas", "sklearn", "torch"},
    "lookup": {"torch"},
    "lookup.pretrained": {"torch", "pyarrow"},
    "models": {"torch"},
    "models.baselines": {"torch", "sklearn", "scipy"},
    "training": {"torch", "tqdm"},
    "evaluation": {"torch", "pandas", "sklearn"},
    "artifact": {"pyarrow", "safetensors", "torch"},
    "recommender": {"pandas"},
    "reporting": {"pandas", "matplotlib", "sklearn"},
}

# `Schema.infer` is promised on Schema and reads sources, two floors up; it loads that room when it is called.
UPWARD_ON_CALL = {("schema.schema", "encoding.inference")}

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports_of(path: Path) -> list[str]:
    """Absolute names of everything a module imports, at any depth of its code."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            found += [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    return found


def place_of(module: str) -> tuple[int, str, int]:
    """Floor, wing and place within the wing."""
    wing, _, room = module.partition(".")
    for floor, wings in enumerate(FLOORS):
        if wing in wings:
            rooms = wings[wing]
            return floor, wing, rooms.index(room) if room else -1
    raise AssertionError(f"{module} stands on no floor")


def own_target(imported: str) -> str | None:
    """The module of ours that an import reaches, or None for a third party."""
    if imported != "recsys_emb" and not imported.startswith("recsys_emb."):
        return None
    known = {name_of(path) for path in MODULES}
    target = imported.removeprefix("recsys_emb").removeprefix(".")
    while target and target not in known:
        target = target.rpartition(".")[0]
    return target


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_lower_floors_or_earlier_rooms_of_its_wing(path: Path) -> None:
    module = name_of(path)
    floor, wing, place = place_of(module)
    for imported in imports_of(path):
        target = own_target(imported)
        if target is None or (module, target) in UPWARD_ON_CALL:
            continue
        assert target or module == "", f"{module} imports the face"
        target_floor, target_wing, target_place = place_of(target)
        inside = target_wing == wing and (target_place < place or path.name == "__init__.py")
        assert target_floor < floor or inside, f"{module} (floor {floor}) imports {target} (floor {target_floor})"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_uses_only_the_third_party_packages_of_its_door(path: Path) -> None:
    module = name_of(path)
    allowed = DOORS.get(module, DOORS.get(module.partition(".")[0], set())) | {"numpy"}
    for imported in imports_of(path):
        package = imported.partition(".")[0]
        if package != "recsys_emb" and package not in sys.stdlib_module_names:
            assert package in allowed, f"{module} imports {package}; its door allows {sorted(allowed)}"


def test_every_room_that_is_listed_exists() -> None:
    rooms = {f"{wing}.{room}" for wings in FLOORS for wing, listed in wings.items() for room in listed}
    assert rooms <= {name_of(path) for path in MODULES}


def test_importing_the_library_does_not_load_the_compiler() -> None:
    import subprocess

    code = "import recsys_emb, sys; print([name for name in ('numba', 'matplotlib', 'polars') if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
