"""Rows of a stack of tables are read and moved as the plain twins do it, table by table in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.kernels import row_update
from recsys_emb.kernels import row_update_reference as twins
from recsys_emb.kernels.row_gather import PLACE

PADDING = 0
RULES = {
    "sgd": (row_update.sgd, twins.sgd_reference, ()),
    "adagrad": (row_update.adagrad, twins.adagrad_reference, (True,)),
    "row_wise_adagrad": (row_update.row_wise_adagrad, twins.row_wise_adagrad_reference, (False,)),
    "lazy_adam": (row_update.lazy_adam, twins.lazy_adam_reference, (True, True)),
}


class Problem:
    """Tables, lookups of them (several of one table, some empty), and a gradient for each."""

    def __init__(self, sizes: list[int], counts: list[tuple[int, int]], D: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.sizes, self.D = np.array(sizes, np.int64), D
        self.firsts = np.concatenate([[0], self.sizes.cumsum()[:-1]])
        self.weights = rng.normal(size=(self.sizes.sum(), D)).astype(np.float32)
        self.places = sorted(place for place, _ in counts)
        lengths = [count for _, count in sorted(counts)]
        # Few rows of large tables, so that they repeat.
        self.indices = [
            rng.integers(0, min(sizes[place], 1 + count), count) * max(1, sizes[place] // (2 + count)) % sizes[place]
            for place, count in zip(self.places, lengths, strict=True)
        ]
        self.gradients = [rng.normal(size=(count, D)).astype(np.float32) for count in lengths]
        # Of a gradient of zero, Adam makes no step.
        for gradient in self.gradients:
            gradient[::3] = 0
        scales = rng.uniform(0.01, 0.1, (len(sizes), 6)).astype(np.float32)
        self.settings = np.where(np.arange(6) == row_update.SPREAD, scales * 30, scales).astype(np.float32)

    @property
    def stack(self) -> row_update.Stack:
        return row_update.Stack(self.weights, self.firsts, self.sizes, PADDING)

    def lookups(self, vectors: list[np.ndarray]) -> np.ndarray:
        rows = [
            (place, len(index), index.ctypes.data, index.strides[0], vector.ctypes.data, vector.strides[0])
            for place, index, vector in zip(self.places, self.indices, vectors, strict=True)
        ]
        return np.array(rows, np.int64).reshape(len(rows), 6)

    def state(self, wide: tuple[bool, ...]) -> tuple[np.ndarray, ...]:
        shapes = [self.weights.shape if each else self.weights.shape[:1] for each in wide]
        return tuple(np.full(shape, 0.1, np.float32) for shape in shapes)

    def moved_by_twin(self, twin: twins.Twin, wide: tuple[bool, ...]) -> tuple[np.ndarray, ...]:
        weights, *state = (one.astype(np.float64) for one in (self.weights, *self.state(wide)))
        for place in set(self.places):
            mine = [k for k, one in enumerate(self.places) if one == place]
            rows = slice(self.firsts[place], self.firsts[place] + self.sizes[place])
            indices = np.concatenate([self.indices[k] for k in mine])
            gradients = np.concatenate([self.gradients[k] for k in mine])
            setting = self.settings[place].astype(np.float64)
            twin(weights[rows], tuple(one[rows] for one in state), indices, gradients, setting, PADDING)
        return weights, *state


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 50, 10**5]), min_size=1, max_size=4))
    lookups = st.tuples(st.integers(0, len(sizes) - 1), st.sampled_from([0, 1, 2, 7, 60]))
    counts = draw(st.lists(lookups, max_size=5))
    return Problem(sizes, counts, draw(st.sampled_from([1, 2, 5, 16, 17, 64])), draw(st.integers(0, 99)))


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_gather_reads_what_the_twin_reads(problem: Problem) -> None:
    vectors = [np.full(one.shape, np.nan, np.float32) for one in problem.gradients]
    row_update.gather(problem.stack, problem.lookups(vectors))
    for place, indices, found in zip(problem.places, problem.indices, vectors, strict=True):
        table = problem.weights[problem.firsts[place] :][: problem.sizes[place]]
        np.testing.assert_array_equal(found, twins.gather_reference(table, indices, PADDING))


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_moves_rows_and_state_as_its_twin_does(rule: str) -> None:
    kernel, twin, wide = RULES[rule]

    @settings(max_examples=60, deadline=None)
    @given(problem=problems())
    def check(problem: Problem) -> None:
        expected = problem.moved_by_twin(twin, wide)
        state = problem.state(wide)
        kernel(problem.stack, state, problem.lookups(problem.gradients), problem.settings)
        for got, wanted in zip((problem.weights, *state), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)

    check()


@pytest.mark.parametrize("rule", RULES)
def test_tables_dealt_out_to_several_calls_move_bit_for_bit_as_in_one(rule: str) -> None:
    kernel, _, wide = RULES[rule]
    weights = []
    for shares in ([[0, 1, 2, 3]], [[3, 1], [0, 2]]):
        problem = Problem([3, 50, 1000, 7], [(0, 300), (1, 300), (2, 300), (2, 50), (3, 9)], 16, 0)
        state, lookups = problem.state(wide), problem.lookups(problem.gradients)
        for share in shares:
            kernel(problem.stack, state, lookups[np.isin(lookups[:, PLACE], share)], problem.settings)
        weights.append(problem.weights)
    np.testing.assert_array_equal(*weights)


def test_indices_and_gradients_are_read_where_they_lie_with_gaps_between_them() -> None:
    problem = Problem([20], [(0, 6)], 3, 1)
    wide_indices, wide_gradients = np.zeros((6, 4), np.int64), np.zeros((6, 11), np.float32)
    wide_indices[:, 2], wide_gradients[:, 5:8] = problem.indices[0], problem.gradients[0]
    apart = Problem([20], [(0, 6)], 3, 1)
    apart.indices = [wide_indices[:, 2]]
    for one, gradients in ((problem, problem.gradients[0]), (apart, wide_gradients[:, 5:8])):
        row_update.sgd(one.stack, (), one.lookups([gradients]), one.settings)
    np.testing.assert_array_equal(problem.weights, apart.weights)


def test_a_gradient_that_is_no_number_reaches_its_row_and_no_other() -> None:
    problem = Problem([20], [(0, 3)], 4, 0)
    problem.indices = [np.array([5, 6, 5])]
    problem.gradients[0][2, 1] = np.nan
    for rule, (kernel, _, wide) in RULES.items():
        weights = problem.weights.copy()
        stack = row_update.Stack(weights, problem.firsts, problem.sizes, PADDING)
        kernel(stack, problem.state(wide), problem.lookups(problem.gradients), problem.settings)
        assert np.isnan(weights).any(1).nonzero()[0].tolist() == [5], rule
