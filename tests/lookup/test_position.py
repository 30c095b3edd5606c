import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from recsys_emb.errors import IndexRangeError
from recsys_emb.lookup.position import LearnedPosition, SinusoidalPosition


def tables() -> list[torch.nn.Module]:
    return [LearnedPosition(3, 5, init_std=1.0), SinusoidalPosition(5, max_position=3)]


@pytest.mark.parametrize("position", tables(), ids=["learned", "sinusoidal"])
def test_a_place_picks_its_row_in_any_leading_shape(position):
    places = torch.tensor([[0, 3], [2, 2]])
    assert torch.equal(position(places), position.table()[places])
    assert position(torch.empty(0, dtype=torch.int64)).shape == (0, 5)
    assert position(torch.tensor(1)).shape == (5,)


@pytest.mark.parametrize("position", tables(), ids=["learned", "sinusoidal"])
def test_add_to_adds_the_first_rows(position):
    tokens = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(position.add_to(tokens), tokens + position.table()[:3])
    assert position.add_to(torch.zeros(0, 4, 5)).shape == (0, 4, 5)
    assert position.add_to(torch.zeros(2, 0, 5)).shape == (2, 0, 5)


@pytest.mark.parametrize("position", tables(), ids=["learned", "sinusoidal"])
@pytest.mark.parametrize("place", [4, -1])
def test_a_place_outside_the_table_is_named(position, place):
    with pytest.raises(IndexRangeError) as caught:
        position(torch.tensor([0, place]))
    assert str(caught.value) == (
        f"feature 'position': expected indices in [0, 4), got {place} (first at position 1). Encode the values with "
        "the encoder that the table was sized by; num_embeddings counts the reserved rows."
    )


def test_a_sequence_longer_than_the_table_is_refused():
    with pytest.raises(IndexRangeError) as caught:
        SinusoidalPosition(5, max_position=3, name="slot").add_to(torch.zeros(1, 5, 5))
    assert str(caught.value) == (
        "SinusoidalPosition('slot'): expected at most 4 places, got 5. Cut the sequence, or raise max_position."
    )


@pytest.mark.parametrize("dim", [1, 2, 5, 8])
def test_waves_follow_the_formula_for_even_and_odd_widths(dim):
    table = SinusoidalPosition(dim, max_position=600).table()
    for place, column in ((0, 0), (1, dim - 1), (600, dim // 2)):
        angle = place / 10000 ** ((column - column % 2) / dim)
        wanted = math.cos(angle) if column % 2 else math.sin(angle)
        assert table[place, column].item() == pytest.approx(wanted, abs=1e-7)


def test_waves_are_neither_learned_nor_saved():
    position = SinusoidalPosition(4)
    assert list(position.parameters()) == []
    assert position.state_dict() == {}


def test_a_step_of_fixed_length_is_one_rotation_wherever_it_starts():
    table = SinusoidalPosition(6, max_position=50).table()
    dots = (table[:-7] * table[7:]).sum(1)
    assert_close(dots, dots[:1].expand_as(dots))


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4), extra=st.integers(0, 5), left=st.booleans())
def test_what_is_added_depends_on_the_place_among_real_tokens_alone(lengths, extra, left):
    position = LearnedPosition(3, 2, init_std=1.0)
    width = 4 + extra
    for length in lengths:
        mask = torch.zeros(1, width, dtype=torch.bool)
        real = slice(width - length, width) if left else slice(0, length)
        mask[0, real] = True
        added = position.add_to(torch.zeros(1, width, 2), mask)
        assert torch.equal(added[0, real], position.table()[:length])
        assert not bool(added[~mask].any())


def test_only_used_places_learn():
    position = LearnedPosition(3, 2)
    position.add_to(torch.zeros(2, 4, 2), torch.tensor([[True, True, False, False]] * 2)).sum().backward()
    assert position.weight.grad[:, 0].tolist() == [2.0, 2.0, 0.0, 0.0]


def test_a_seeded_generator_repeats_the_learned_table():
    first, second = (LearnedPosition(3, 2, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first.weight, second.weight)
