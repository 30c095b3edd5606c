"""`EncodedRows`: a folder of encoded rows that says what is in it, and is read as long as all of it is there."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

from pyarrow import fs

from recsys_emb.encoding.batch import Batch
from recsys_emb.encoding.encoded_table import EncodedReader
from recsys_emb.encoding.row_encoder import Answers
from recsys_emb.encoding.stacking import stack_rows
from recsys_emb.errors import DataError, LineageError, SchemaError, counted, listed
from recsys_emb.schema import Schema
from recsys_emb.sources.files import named_parts
from recsys_emb.sources.locations import Location, explained, locate
from recsys_emb.sources.marked import FORMAT, KIND, MANIFEST, PART, read_mark
from recsys_emb.sources.sources import Source
from recsys_emb.sources.writing import UNFINISHED, write_bytes

_VERSION = 1
_LIVING = 3600  # seconds in which a living writer writes something
_AGAIN = "Encode again with transform_to."


class Fitted(Protocol):
    """What is known of an encoder here."""

    @property
    def fingerprint(self) -> str:
        """Equal fingerprints encode equally."""


@dataclass(frozen=True)
class EncodedPart:
    """A file of encoded rows."""

    name: str
    num_rows: int
    size: int
    """Bytes."""
    digest: str = ""
    """SHA-256 of the rows; nothing where an earlier version wrote them."""


class EncodedRows:
    """Rows that `FeatureEncoder.transform_to` encoded; a `BatchLoader` takes them as a source.

    Parameters
    ----------
    folder
        Path or URI.

    Raises
    ------
    DataError
        When the folder is not one that ``transform_to`` wrote to its end, or a part of it is missing or has changed,
        by name.

    Examples
    --------
    >>> import tempfile
    >>> from recsys_emb.encoding.encoder import FeatureEncoder
    >>> from recsys_emb.schema import Categorical, Schema
    >>> encoder = FeatureEncoder(Schema(user=Categorical("user_id"))).fit({"user_id": ["ann", "bob"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     encoder.transform_to({"user_id": ["bob", "eve"]}, folder)
    ...     EncodedRows(folder).read(encoder)["user_id"]
    EncodedRows(2 rows in 1 part)
    tensor([4, 2])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        place = locate(os.fspath(folder))
        self._take(place, read_manifest(place))

    @classmethod
    def of(cls, place: Location, manifest: dict[str, Any]) -> EncodedRows:
        """Give the rows of a manifest that was just written, whoever writes the same ones there now."""
        made = cls.__new__(cls)
        made._take(place, manifest)
        return made

    def _take(self, place: Location, said: dict[str, Any] | None) -> None:
        self.place, self._said = place, said
        if said is None or said.get("parts") is None:
            got = "none" if said is None else "one that is not finished"
            raise DataError(f"{self.place.name}: expected a folder of encoded rows, got {got}. {_AGAIN}")
        try:
            self.schema = Schema.from_json(json.dumps(said["schema"]))
            self.answers = Answers(**said["answers"])
            self.fingerprint: str = said["fingerprint"]
            self.parts = tuple(EncodedPart(**part) for part in said["parts"])
            self._limits: dict[str, int] = said["num_embeddings"]
        except (KeyError, TypeError, SchemaError) as error:
            got = f"an error: {error}".rstrip(".")
            raise DataError(f"{self.place.name}: expected a whole {MANIFEST!r}, got {got}. {_AGAIN}") from error
        self._check_parts()

    def __repr__(self) -> str:
        return f"EncodedRows({counted(len(self), 'row')} in {counted(len(self.parts), 'part')})"

    def __len__(self) -> int:
        """Count the rows."""
        return sum(part.num_rows for part in self.parts)

    def _check_parts(self) -> None:
        sizes = {info.base_name: info.size for info in _infos(self.place)}
        wrong = [part.name for part in self.parts if sizes.get(part.name) != part.size]
        if wrong:
            missing = [name for name in wrong if name not in sizes]
            got = f"none of {listed(missing)}" if missing else f"others of another size: {listed(wrong)}"
            raise DataError(f"{self.place.name}: expected {counted(len(self.parts), 'part')}, got {got}. {_AGAIN}")

    @cached_property
    def source(self) -> Source:
        """The parts, in the order of the rows that were encoded; columns are indices."""
        opened = Source(tuple(named_parts(self.place, [part.name for part in self.parts])))
        self._check_manifest()
        return opened

    def _check_manifest(self) -> None:
        """Refuse other rows than those that were there when the folder was opened."""
        if read_manifest(self.place) != self._said:
            raise DataError(
                f"{self.place.name}: expected the rows that were opened, got others. The folder has changed. "
                "Open it anew: EncodedRows(folder)."
            )

    def reader(self, encoder: Fitted) -> EncodedReader:
        """Give what reads the rows of `source` as batches.

        Raises
        ------
        LineageError
            When they were encoded by another encoder.
        DataError
            When others were written to the folder since it was opened.
        """
        self._check_manifest()
        if encoder.fingerprint != self.fingerprint:
            raise LineageError(
                f"{self.place.name}: expected rows of the encoder {encoder.fingerprint[:8]}, got rows of another: "
                f"{self.fingerprint[:8]}. {_AGAIN}"
            )
        return EncodedReader(self.schema, self._limits)

    def read(self, encoder: Fitted) -> Batch:
        """Read all rows; raises as `reader` does."""
        reader = self.reader(encoder)
        stream = self.source.rows([*reader.columns, *self.answers.columns])
        return stack_rows([reader.nothing(self.answers), *(reader.encode(rows, self.answers) for rows in stream)])


def claim(place: Location, manifest: Mapping[str, Any]) -> None:
    """Take a folder: say in it that it is not finished.

    Raises
    ------
    DataError
        When there is something else in it.
    """
    with explained(place.name, "a folder to write to", "Check it and the permissions.", DataError):
        place.filesystem.create_dir(place.path, recursive=True)
    strangers = [name for info in _infos(place) if not (name := info.base_name).endswith(UNFINISHED)]
    if strangers and read_manifest(place) is None:
        raise DataError(
            f"{place.name}: expected an empty folder, or one of encoded rows, got {listed(sorted(strangers))}. "
            "Give another folder."
        )
    _write(place, {**manifest, "parts": None})


def finish(place: Location, manifest: Mapping[str, Any], parts: Sequence[EncodedPart]) -> dict[str, Any]:
    """Remove parts of earlier runs and what dead writers left, then say that all is there; give what was said.

    Another run may be writing the same rows, so what was written to a short while ago is not taken for dead.
    """
    named, dead = {MANIFEST, *(part.name for part in parts)}, time.time() - _LIVING
    with explained(place.name, "a folder to write to", "Check it and the permissions.", DataError):
        for info in _infos(place):
            left = info.base_name.endswith(UNFINISHED) and (info.mtime_ns or 0) < dead * 1e9
            if left or (PART.fullmatch(info.base_name) and info.base_name not in named):
                with contextlib.suppress(FileNotFoundError):  # another run was first
                    place.filesystem.delete_file(info.path)
    said = {**manifest, "parts": [asdict(part) for part in parts]}
    _write(place, said)
    return said


def read_manifest(place: Location) -> dict[str, Any] | None:
    """Read the manifest of a folder of encoded rows; None where there is none.

    Raises
    ------
    DataError
        When it was written by a newer version.
    """
    said = read_mark(place.filesystem, place.path)
    if said is not None and said.get("format_version") != _VERSION:
        raise DataError(
            f"{place.name}: expected format version {_VERSION}, got {said.get('format_version')!r}. Upgrade recsys_emb."
        )
    return said


def described(schema: Schema, answers: Answers, fingerprint: str, limits: Mapping[str, int]) -> dict[str, Any]:
    """Describe encoded rows as a manifest does, but for its parts."""
    return {
        "format": FORMAT,
        "kind": KIND,
        "format_version": _VERSION,
        "fingerprint": fingerprint,
        "schema": json.loads(schema.to_json()),
        "answers": asdict(answers),
        "num_embeddings": dict(limits),
    }


def _write(place: Location, content: Mapping[str, Any]) -> None:
    write_bytes(place, MANIFEST, json.dumps(content, indent=2).encode())


def _infos(place: Location) -> list[fs.FileInfo]:
    selector = fs.FileSelector(place.path, allow_not_found=True)
    with explained(place.name, "a folder that can be listed", "Check it and the permissions.", DataError):
        return [info for info in place.filesystem.get_file_info(selector) if info.type == fs.FileType.File]
