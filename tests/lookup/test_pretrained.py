import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_emb.errors import ColumnError, DataError, KeyTypeError
from recsys_emb.lookup.category import CategoryEmbedding
from recsys_emb.lookup.hashed import HashedEmbedding
from recsys_emb.lookup.one_hot import OneHotProjection
from recsys_emb.lookup.pretrained import PretrainedVectors
from recsys_emb.lookup.projected import ProjectedEmbedding
from recsys_emb.schema.tables import RefuseUnknown
from recsys_emb.vocabulary.vocabulary import Vocabulary

DRINKS = {"tea": [1.0, 2.0], "milk": [3.0, 4.0], "rum": [5.0, 6.0]}


KEYS, VECTORS = list(DRINKS), np.array(list(DRINKS.values()), dtype=np.float32)
LINES = "\n".join(f"{key} {first} {second}" for key, (first, second) in DRINKS.items())


def from_glove(path: Path) -> PretrainedVectors:
    path.write_text(LINES)
    return PretrainedVectors.from_glove(path)


def from_word2vec(path: Path) -> PretrainedVectors:
    path.write_text("3 2\n" + LINES)
    return PretrainedVectors.from_word2vec(str(path))


def from_binary(path: Path) -> PretrainedVectors:
    path.write_bytes(b"3 2\n" + b"\n".join(key.encode() + b" " + struct.pack("<2f", *DRINKS[key]) for key in DRINKS))
    return PretrainedVectors.from_word2vec(path, binary=True)


def from_parquet(path: Path) -> PretrainedVectors:
    pq.write_table(pa.table({"key": KEYS, "vector": list(DRINKS.values()), "extra": [1, 2, 3]}), path)
    return PretrainedVectors.from_parquet(path)


SOURCES = {
    "mapping": lambda _: PretrainedVectors.from_mapping(DRINKS),
    "tensor": lambda _: PretrainedVectors(KEYS, torch.from_numpy(VECTORS).double()),
    "series": lambda _: PretrainedVectors(pd.Series(KEYS, index=[9, 9, 9]), VECTORS),
    "glove": from_glove,
    "word2vec": from_word2vec,
    "binary": from_binary,
    "parquet": from_parquet,
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("lookup", [CategoryEmbedding, OneHotProjection])
def test_every_source_lands_on_the_rows_of_its_own_keys(source, lookup, tmp_path):
    vocabulary = Vocabulary.from_values(["rum", "rum", "gin", "tea"], name="drink")
    table = lookup(vocabulary.num_embeddings, 2, padding_index=0, reserved=vocabulary.first_index)
    before = table.table().detach().clone()
    coverage = SOURCES[source](tmp_path / "drinks").fill(table, vocabulary)
    after = table.table().detach()
    assert after[vocabulary.encode(["tea", "rum"])].tolist() == [[1.0, 2.0], [5.0, 6.0]]
    untouched = torch.cat([torch.arange(vocabulary.first_index), vocabulary.encode(["gin"])])
    assert torch.equal(after[untouched], before[untouched])
    assert (coverage.found, coverage.total, coverage.absent, coverage.unused) == (2, 3, ("gin",), 1)
    assert coverage.found_share == 0.75


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(["tea", "milk", "rum", "gin"]), known=st.integers(0, 4))
def test_vectors_follow_their_key_in_any_vocabulary_order(order, known):
    values = [value for rank, value in enumerate(order[:known]) for _ in range(4 - rank)]
    vocabulary = Vocabulary.from_values(pa.array(values, pa.string()), name="drink")
    table = CategoryEmbedding(vocabulary.num_embeddings, 2)
    PretrainedVectors.from_mapping(DRINKS).fill(table, vocabulary)
    for value in set(order[:known]) - {"gin"}:
        assert table(vocabulary.encode([value])).tolist() == [DRINKS[value]]


def test_integer_keys_have_the_identity_of_their_value():
    vocabulary = Vocabulary.from_values([5, 7], name="item_id")
    table = CategoryEmbedding(vocabulary.num_embeddings, 1)
    PretrainedVectors(np.array([7.0, 5.0]), torch.tensor([[7.0], [5.0]])).fill(table, vocabulary)
    assert table(vocabulary.encode([5, 7])).tolist() == [[5.0], [7.0]]


def test_keys_of_another_type_are_refused():
    vocabulary = Vocabulary.from_values([5, 7], name="item_id")
    with pytest.raises(KeyTypeError):
        PretrainedVectors(["5", "7"], torch.ones(2, 1)).coverage(vocabulary)


def test_a_vocabulary_that_refuses_unknown_values_takes_unused_keys():
    vocabulary = Vocabulary.from_values(["tea"], name="drink", unknown=RefuseUnknown())
    assert PretrainedVectors.from_mapping(DRINKS).coverage(vocabulary).unused == 2


def test_the_report_reads_as_a_sentence():
    vocabulary = Vocabulary.from_values(["rum", "rum", "gin", "tea"], name="drink")
    assert str(PretrainedVectors.from_mapping(DRINKS).coverage(vocabulary)) == (
        "2 of 3 values have a vector (75.0 % of occurrences); without: 'gin'. "
        "1 key unused, 0 repeated, 0 lines skipped."
    )


@pytest.mark.parametrize("freeze", [True, False])
def test_freeze_decides_whether_the_table_learns(freeze):
    vocabulary = Vocabulary.from_values(["tea", "gin"], name="drink")
    table = PretrainedVectors.from_mapping(DRINKS).embedding(vocabulary, freeze=freeze)
    assert table.weight.requires_grad is not freeze
    assert torch.equal(table.weight[:3], torch.zeros(3, 2))
    assert bool(table(vocabulary.encode(["gin"])).all())


def test_reset_starts_from_the_pretrained_vectors_again():
    vocabulary = Vocabulary.from_values(["tea", "gin"], name="drink")
    table = PretrainedVectors.from_mapping(DRINKS).embedding(vocabulary)
    torch.nn.init.zeros_(table.weight)
    table.reset_parameters(init_std=0.5)
    assert table(vocabulary.encode(["tea"])).tolist() == [[1.0, 2.0]]
    assert bool(table(vocabulary.encode(["gin"])).all())
    assert torch.equal(table.weight[:3], torch.zeros(3, 2))


def test_growth_keeps_the_vectors():
    vocabulary = Vocabulary.from_values(["tea", "gin"], name="drink")
    table = PretrainedVectors.from_mapping(DRINKS).embedding(vocabulary)
    table.grow(vocabulary.num_embeddings + 2)
    table.reset_parameters()
    assert table(vocabulary.encode(["tea"])).tolist() == [[1.0, 2.0]]


def test_another_width_is_projected_by_a_learned_matrix_and_padding_stays_zero():
    vocabulary = Vocabulary.from_values(["tea", "gin"], name="drink")
    lookup = PretrainedVectors.from_mapping(DRINKS).embedding(vocabulary, embedding_dim=5, freeze=True)
    assert isinstance(lookup, ProjectedEmbedding)
    indices = torch.cat([torch.tensor([0]), vocabulary.encode(["tea"])])
    vectors = lookup(indices)
    vectors.sum().backward()
    assert torch.equal(vectors[0], torch.zeros(5))
    assert torch.equal(vectors[1], torch.tensor([1.0, 2.0]) @ lookup.projection)
    assert torch.equal(lookup.table()[indices], vectors)
    assert lookup.inner.weight.grad is None
    assert bool(lookup.projection.grad.any())


def test_a_projection_grows_and_resets_with_its_table():
    lookup = ProjectedEmbedding(CategoryEmbedding(5, 3, padding_index=0), 2)
    before = lookup(torch.arange(5))
    lookup.grow(7)
    assert torch.equal(lookup(torch.arange(5)), before)
    assert lookup(torch.tensor([6])).shape == (1, 2)
    first, second = (torch.Generator().manual_seed(3) for _ in range(2))
    lookup.reset_parameters(generator=first)
    drawn = lookup.table()
    lookup.reset_parameters(generator=second)
    assert torch.equal(lookup.table(), drawn)


def test_a_width_that_differs_from_the_table_is_refused():
    vocabulary = Vocabulary.from_values(["tea"], name="drink")
    with pytest.raises(DataError) as caught:
        PretrainedVectors.from_mapping(DRINKS, name="drinks").fill(
            CategoryEmbedding(vocabulary.num_embeddings, 3, name="drink"), vocabulary
        )
    assert str(caught.value) == (
        "feature 'drink': expected a table (4, 2) for 'drinks' and its vocabulary, got (4, 3). "
        "Size it by the vocabulary; project with embedding(vocabulary, embedding_dim=...)."
    )


def test_a_table_without_a_row_per_index_is_refused():
    vocabulary = Vocabulary.from_values(["tea"], name="drink")
    with pytest.raises(DataError) as caught:
        PretrainedVectors.from_mapping(DRINKS).fill(
            HashedEmbedding(vocabulary.num_embeddings, 2, num_embeddings=3, name="drink"), vocabulary
        )
    assert str(caught.value) == (
        "feature 'drink': expected a table with a row per index, got a HashedEmbedding. "
        "Declare the feature with table=Lookup()."
    )


def test_a_padding_row_takes_no_vector():
    table = CategoryEmbedding(4, 2, padding_index=1)
    table.give(torch.tensor([1, 2]), torch.ones(2, 2))
    assert table.weight[[1, 2]].tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_one_vector_per_key_is_asked_for():
    with pytest.raises(DataError) as caught:
        PretrainedVectors(["tea"], torch.ones(2, 3), name="drinks")
    assert str(caught.value) == "drinks: expected one vector per key, (1, D), got (2, 3). Pass a matrix."


def test_vectors_of_two_widths_are_refused():
    with pytest.raises(DataError) as caught:
        PretrainedVectors.from_mapping({"tea": [1.0], "milk": [1.0, 2.0]}, name="drinks")
    assert str(caught.value) == "drinks: expected vectors of one width, got shapes (1,), (2,). Make them equal."


def test_missing_keys_are_refused():
    with pytest.raises(DataError) as caught:
        PretrainedVectors(["tea", None], torch.ones(2, 3), name="drinks")
    assert str(caught.value) == "drinks: expected a key per vector, got 1 missing key. Drop them."


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_vectors_that_are_not_finite_are_refused(value):
    with pytest.raises(DataError) as caught:
        PretrainedVectors.from_mapping({"tea": [1.0], "rum": [value]}, name="drinks")
    assert str(caught.value) == "drinks: expected finite vectors, got NaN or infinity in those of 'rum'. Drop them."


def test_nothing_at_all_covers_nothing():
    vocabulary = Vocabulary.from_values(["tea"], name="drink")
    assert str(PretrainedVectors.from_mapping({}).coverage(vocabulary)) == (
        "0 of 1 value have a vector (0.0 % of occurrences); without: 'tea'. 0 keys unused, 0 repeated, 0 lines skipped."
    )


def test_an_empty_vocabulary_is_covered():
    vocabulary = Vocabulary.from_values(pa.array([], pa.string()), name="drink")
    coverage = PretrainedVectors.from_mapping(DRINKS).coverage(vocabulary)
    assert (coverage.found, coverage.total, coverage.unused) == (0, 0, 3)


def test_a_frame_names_its_columns_or_has_two():
    frame = pd.DataFrame({"drink": KEYS, "vector": list(VECTORS), "price": [1, 2, 3]}, index=[7, 7, 7])
    vocabulary = Vocabulary.from_values(["rum"], name="drink")
    for made in (
        PretrainedVectors.from_frame(frame[["vector", "drink"]]),
        PretrainedVectors.from_frame(frame, key="drink"),
        PretrainedVectors.from_frame(frame.rename(columns={"vector": "v"}), key="drink", vector="v"),
    ):
        assert made.embedding(vocabulary)(vocabulary.encode(["rum"])).tolist() == [[5.0, 6.0]]


@pytest.mark.parametrize(("options", "wanted"), [
    ({}, "the columns 'vector' and one of keys"),
    ({"key": "tee"}, "the columns 'vector' and 'tee'"),
    ({"vector": "v"}, "the columns 'v' and one of keys"),
])  # fmt: skip
def test_a_frame_without_the_columns_is_refused(options, wanted):
    frame = pd.DataFrame({"drink": ["tea"], "vector": [[1.0]], "price": [1]})
    with pytest.raises(ColumnError) as caught:
        PretrainedVectors.from_frame(frame, name="drinks", **options)
    assert str(caught.value) == (f"drinks: expected {wanted}, got 'drink', 'vector', 'price'. Name key and vector.")


def test_a_fingerprint_depends_on_keys_and_vectors():
    one, same, other_key, other_vector = (
        PretrainedVectors([key], torch.tensor([[number]])).fingerprint
        for key, number in (("a", 1.0), ("a", 1.0), ("b", 1.0), ("a", 2.0))
    )
    assert one == same
    assert len({one, other_key, other_vector}) == 3


@pytest.mark.parametrize("read", [PretrainedVectors.from_word2vec, PretrainedVectors.from_glove])
def test_a_file_in_a_store_is_refused_before_it_is_looked_for(read):
    with pytest.raises(DataError) as caught:
        read("s3://bucket/vectors.txt?region=us-east-1")
    got = "got s3://bucket/vectors.txt?region=us-east-1. Copy what is there."
    assert str(caught.value) == f"PretrainedVectors: expected a path on this machine, {got}"
