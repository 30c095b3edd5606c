"""Encode a source on an engine, piece by piece, into a folder of Parquet parts.

The encoder is kept once per machine. A part is named after the file and the row group that it came from and gets its
name when it is whole, so a task that is done twice, or a run that is repeated, writes the same files.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow.parquet as pq

from recsys_emb.encoding.encoded_folder import EncodedPart, EncodedRows, claim, described, finish
from recsys_emb.encoding.encoded_table import to_table
from recsys_emb.encoding.engine_join import FoundByName, join_on, parted
from recsys_emb.encoding.engine_pieces import Sent, submit_pieces
from recsys_emb.encoding.learning import EncoderState
from recsys_emb.encoding.row_encoder import Answers, RowEncoder
from recsys_emb.engines.engine import Engine, Handle, watched
from recsys_emb.sources.locations import Location, locate
from recsys_emb.sources.pieces import Piece, pieces
from recsys_emb.sources.sources import Source
from recsys_emb.sources.writing import refused, written
from recsys_emb.vocabulary.shipping import Shipped
from recsys_emb.vocabulary.vocabulary import Vocabulary

_STEM_BYTES = 160  # of a name of 255 at most, which has more around it while it is written


def transform_on(
    engine: Engine,
    state: EncoderState,
    source: Source,
    folder: str | os.PathLike[str],
    *,
    with_label: bool = True,
    progress: bool | None = None,
) -> EncodedRows:
    """Encode all rows of a source into a folder; see `FeatureEncoder.transform_to`."""
    encoder, place = RowEncoder(state), locate(os.fspath(folder))
    answers = Answers.of(state.schema, source) if with_label else Answers()
    columns = list(dict.fromkeys([*encoder.columns, *answers.columns]))
    source.check(columns)
    limits = {name: codec.num_embeddings for name, codec in encoder.codecs.items()}
    manifest = described(state.schema, answers, state.fingerprint, limits)
    claim(place, manifest)
    shipment = engine.put(Shipment(state))

    def write(piece: Piece, sent: Sent, *found: Handle) -> list[Handle]:
        return engine.submit(_write, shipment, sent, answers, place, *found, name=f"transform {piece.name}")

    stream = pieces(source, columns)
    handles_of = join_on(engine, state, stream, write) if parted(state) else submit_pieces(engine, stream, write)
    parts = list(watched(engine, [handles[-1] for handles in handles_of], "transform", progress))
    source.check_unchanged()
    return EncodedRows.of(place, finish(place, manifest, parts))


@dataclass(frozen=True)
class Shipment:
    """What a fit learned, on its way to workers; between threads it is the same one."""

    state: EncoderState

    @cached_property
    def encoder(self) -> RowEncoder:
        """Encodes with it."""
        return RowEncoder(self.state)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the tables of the vocabularies too."""
        own = self.state
        shipped = {name: Shipped(vocabulary) for name, vocabulary in own.vocabularies.items()}
        return _unpacked, (own.schema, shipped, own.numeric, own.positions)

    def joined(self, found: Sequence[FoundByName]) -> RowEncoder:
        """Give what encodes rows of which the keys of some vocabularies were looked for already."""
        if not found:
            return self.encoder
        joined = {
            name: one.joined([key for own in found for key in own.get(name, [])])
            for name, one in parted(self.state).items()
        }
        return RowEncoder(replace(self.state, vocabularies={**self.state.vocabularies, **joined}))


def _unpacked(schema: Any, shipped: Mapping[str, Shipped], numeric: Any, positions: Any) -> Shipment:
    vocabularies: dict[str, Vocabulary] = {name: one.vocabulary for name, one in shipped.items()}
    return Shipment(EncoderState(schema, vocabularies, numeric, positions))


def _write(shipment: Shipment, piece: Piece, answers: Answers, place: Location, *found: FoundByName) -> EncodedPart:
    """Encode a piece into its file."""
    encoder, name, num_rows, digest = shipment.joined(found), file_name(piece), 0, hashlib.sha256()
    schema = to_table(encoder.nothing(answers), answers).schema
    with written(place, name) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in piece.rows(list(dict.fromkeys([*encoder.columns, *answers.columns]))):
            encoded = to_table(encoder.encode(rows, answers), answers)
            with refused(place, name):
                writer.write_table(encoded)
            num_rows += len(rows)
            for record in encoded.to_batches():
                digest.update(record.serialize())
    size = place.filesystem.get_file_info(posixpath.join(place.path, name)).size
    return EncodedPart(name, num_rows, size, digest.hexdigest())


def file_name(piece: Piece) -> str:
    """Name the file of a piece: the number of its part, for the order; the part; the number of the piece.

    The part is cut from the left where the name would be longer than file systems allow; the numbers tell files apart.

    >>> file_name(Piece("day=1/ratings.parquet", 4, 2, 0, True, lambda names: []))
    '00004-day=1.ratings-00002.parquet'
    """
    stem = re.sub(r"[^\w.=-]", "_", re.sub(r"\.(parquet|parq|pq)$", "", piece.part).replace("/", "."))
    stem = stem.encode()[-_STEM_BYTES:].decode(errors="ignore")
    return f"{piece.place:05}-{stem}-{piece.number:05}.parquet"
