"""The house keeps its floors: who may import whom, read from the code's own imports.

The table in docs/design.md is the twin of the tables here; change both together.
"""

from __future__ import annotations

import ast
import graphlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn.exceptions

import recsys_emb
from recsys_emb import errors

PACKAGE = Path(__file__).parents[1] / "recsys_emb"

# The wings of each floor, lowest first.
FLOORS = [
    {"_version", "errors", "kernels"},
    {"schema", "sources", "engines", "not_fitted"},
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
    "not_fitted": {"sklearn"},
    "kernels": {"numba"},
    "kernels.memory": {"numba", "llvmlite"},
    "schema": {"pydantic"},
    "sources": {"pyarrow", "pandas"},
    "sources.keys": {"pyarrow", "pandas", "torch"},
    "engines": {"tqdm"},
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
    "integrations.ann": {"faiss", "pandas", "torch"},
    "integrations.ray": {"ray"},
    "integrations.torchrec": {"torch", "torchrec"},
    "recommender": {"pandas"},
}

# `Schema.infer` and `Schema.plan` are promised on Schema, `FeatureEncoder.save` and `load` on the encoder; these load
# the rooms above that know when they are called.
# `NotFittedError` stands among the errors and is scikit-learn's too; its room is loaded when it is named.
UPWARD_ON_CALL = {
    ("schema.schema", "encoding.inference"),
    ("schema.schema", "reporting.planning"),
    ("schema.schema", "reporting.machines"),
    ("encoding.encoder", "artifact.encoders"),
    ("errors", "not_fitted"),
}

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


def door_of(module: str) -> set[str]:
    """The door of a room, or else of the wing or the part of a wing that it is in."""
    while module not in DOORS and "." in module:
        module = module.rpartition(".")[0]
    return DOORS.get(module, set())


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
    allowed = door_of(module) | {"numpy"}
    for imported in imports_of(path):
        package = imported.partition(".")[0]
        if package != "recsys_emb" and package not in sys.stdlib_module_names:
            assert package in allowed, f"{module} imports {package}; its door allows {sorted(allowed)}"


def test_every_wing_stands_on_a_floor() -> None:
    wings = {name_of(path).partition(".")[0] for path in MODULES}
    assert wings == set().union(*FLOORS)


def face_imports() -> dict[str, str]:
    """Where a type checker finds the names of the face."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: (node.module or "").removeprefix("recsys_emb.")
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_the_face_lists_its_public_names_once_and_finds_them_where_type_checkers_do() -> None:
    assert face_imports() == recsys_emb._HOMES
    assert sorted(recsys_emb.__all__) == sorted([*recsys_emb._HOMES, "__version__", "errors"])
    assert dir(recsys_emb) == sorted(recsys_emb.__all__)


@pytest.mark.parametrize("name", recsys_emb.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(recsys_emb, name) is not None


def test_the_face_knows_no_other_name() -> None:
    with pytest.raises(AttributeError) as caught:
        recsys_emb.Recomender  # noqa: B018
    assert str(caught.value) == "module 'recsys_emb' has no attribute 'Recomender'. Did you mean 'Recommender'?"


def test_a_star_imports_the_public_names_and_nothing_else() -> None:
    names: dict[str, object] = {}
    exec("from recsys_emb import *", names)
    assert set(names) - {"__builtins__"} == set(recsys_emb.__all__)


def test_errors_name_the_one_that_is_scikit_learns_too_and_no_other() -> None:
    assert {errors.RecsysEmbError, sklearn.exceptions.NotFittedError} <= set(errors.NotFittedError.__mro__)
    assert pickle.loads(pickle.dumps(errors.NotFittedError("a"))).args == ("a",)
    with pytest.raises(AttributeError) as caught:
        errors.FittedError  # noqa: B018
    assert str(caught.value) == "module 'recsys_emb.errors' has no attribute 'FittedError'"


HEAVY = ("torch", "pandas", "pyarrow", "sklearn", "scipy", "pydantic", "safetensors")
NEVER = ("numba", "matplotlib", "polars", "torch._dynamo")
LOADS = {
    "import recsys_emb": set(),
    "from recsys_emb import errors": set(),
    "from recsys_emb import Categorical, Schema": set(),
    "from recsys_emb import CategoryEmbedding, one_hot, LearnedPosition": {"torch"},
    "from recsys_emb import LazyAdam, RowWiseAdagrad": {"torch"},
    "from recsys_emb import Vocabulary": {"torch", "pandas", "pyarrow"},
    "from recsys_emb import FeatureEncoder, BatchLoader": {"torch", "pandas", "pyarrow", "sklearn", "scipy"},
    "from recsys_emb import *": set(HEAVY) - {"pydantic"},
}


TWO_THREADS = """
import threading, recsys_emb
both, found = threading.Barrier(2), []
def ask(name):
    both.wait()
    found.append(getattr(recsys_emb, name))
threads = [threading.Thread(target=ask, args=(name,)) for name in ("Schema", "Categorical")]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == 2
"""


def test_two_threads_may_load_names_at_the_same_time() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", TWO_THREADS], check=True)


@pytest.mark.parametrize("statement", LOADS)
def test_importing_a_name_loads_what_it_needs_and_neither_a_compiler_nor_an_optional_extra(statement: str) -> None:
    code = f"{statement}\nimport sys; print(*(name for name in {HEAVY + NEVER} if name in sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(answer.stdout.split()) == LOADS[statement]
