"""The house keeps its floors: who may import whom, read from the code's own imports.

The table in docs/design.md is the twin of the tables here; change both together.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "recsys_emb"

# The wings of each floor, lowest first.
FLOORS = [
    {"_version", "errors", "kernels"},
    {"schema", "sources"},
    {"vocabulary"},
    {"encoding"},
    {"lookup", "loading"},
    {"models"},
    {"training", "evaluation", "artifact"},
    {"serving", "reporting", "integrations"},
    {"recommender"},
    {""},
]

# The third-party packages that a wing, or one room of it, may import; numpy is free.
DOORS: dict[str, set[str]] = {
    "errors": {"sklearn"},
    "kernels": {"numba"},
    "kernels.memory": {"numba", "llvmlite"},
    "schema": {"pydantic"},
    "sources": {"pyarrow", "pandas"},
    "sources.keys": {"pyarrow", "pandas", "torch"},
    "vocabulary": {"pyarrow", "pandas", "torch"},
    "encoding": {"pyarrow", "pandas", "sklearn", "torch"},
    "loading": {"pyarrow", "torch"},
    "lookup": {"torch"},
    "lookup.vector_files": {"pyarrow"},
    "lookup.plan": {"pandas"},
    "lookup.pretrained": {"torch", "pandas"},
    "lookup.feature_embedding": {"torch", "pandas"},
    "lookup.fused_embedding": {"torch", "pandas"},
    "models": {"torch"},
    "models.baselines": {"torch", "sklearn", "scipy"},
    "training": {"torch", "tqdm"},
    "training.history": {"pandas"},
    "evaluation": {"torch", "pandas", "sklearn"},
    "artifact": {"pyarrow", "safetensors", "torch"},
    "serving": {"pandas", "torch"},
    "reporting": {"pandas", "pyarrow", "matplotlib", "sklearn", "torch"},
    "recommender": {"pandas"},
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


def floor_of(module: str) -> int:
    """Floor of the wing that a module stands in; the face is on top."""
    wing = module.partition(".")[0]
    return next(floor for floor, wings in enumerate(FLOORS) if wing in wings)


def own_target(imported: str) -> str | None:
    """The module of ours that an import reaches, or None for a third party."""
    if imported != "recsys_emb" and not imported.startswith("recsys_emb."):
        return None
    known = {name_of(path) for path in MODULES}
    target = imported.removeprefix("recsys_emb").removeprefix(".")
    while target and target not in known:
        target = target.rpartition(".")[0]
    return target


def targets_of(path: Path) -> set[str]:
    """The modules of ours that a module imports, but for the one door upward."""
    module = name_of(path)
    targets = {own_target(imported) for imported in imports_of(path)} - {None, module}
    return {target for target in targets if (module, target) not in UPWARD_ON_CALL}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_lower_floors_or_its_own_wing_and_never_the_face(path: Path) -> None:
    module = name_of(path)
    for target in targets_of(path):
        assert target, f"{module} imports the face"
        inside = target.partition(".")[0] == module.partition(".")[0]
        assert inside or floor_of(target) < floor_of(module), f"{module} imports {target}, which is not below it"


def test_the_rooms_of_a_wing_import_each_other_in_one_order() -> None:
    rooms = {name_of(path): targets_of(path) for path in MODULES if path.name != "__init__.py"}
    graphlib.TopologicalSorter(rooms).prepare()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_uses_only_the_third_party_packages_of_its_door(path: Path) -> None:
    module = name_of(path)
    allowed = DOORS.get(module, DOORS.get(module.partition(".")[0], set())) | {"numpy"}
    for imported in imports_of(path):
        package = imported.partition(".")[0]
        if package != "recsys_emb" and package not in sys.stdlib_module_names:
            assert package in allowed, f"{module} imports {package}; its door allows {sorted(allowed)}"


def test_every_wing_stands_on_a_floor() -> None:
    wings = {name_of(path).partition(".")[0] for path in MODULES}
    assert wings == set().union(*FLOORS)


def test_the_face_lists_exactly_its_public_names() -> None:
    import types

    import recsys_emb

    public = {name for name, value in vars(recsys_emb).items() if not isinstance(value, types.ModuleType)}
    assert {name for name in public if not name.startswith("_")} | {"__version__"} == set(recsys_emb.__all__)
    assert len(recsys_emb.__all__) == len(set(recsys_emb.__all__))


def test_importing_the_library_loads_no_compiler_and_no_optional_extra() -> None:
    heavy = ("numba", "matplotlib", "polars", "torch._dynamo")
    code = f"import recsys_emb, sys; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
