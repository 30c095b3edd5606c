"""A sealed folder in an object store: a manifest, put last, says which save the folder stands for.

=============================  =====================================================================================
``manifest.json``              names the current save; replaced as a whole, as a store replaces an object
``save-0123456789abcdef/``     a sealed folder as on a disk, under a name of its own, so that it is written only once
=============================  =====================================================================================

A reader finds the old save or the new one, a writer that dies leaves the old one, and of two writers the last is kept.
Nothing is renamed: a store would copy it. The earlier save is removed once the new manifest stands; what a dead writer
left is removed by a later one, a day after.
"""

from __future__ import annotations

import contextlib
import posixpath
import secrets
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from recsys_emb.artifact.listing import Listing
from recsys_emb.artifact.manifest import (
    MANIFEST,
    SAVE,
    check_manifest,
    current_save,
    described,
    is_litter,
    parse_json,
)
from recsys_emb.artifact.sealing import check_listed, read_sealed, seal
from recsys_emb.artifact.store import BESIDE, Store
from recsys_emb.errors import ArtifactError, listed, warn_outside
from recsys_emb.sources.locations import Location

_ATTEMPTS = 5
_ABANDONED = timedelta(days=1)

T = TypeVar("T")


def write_stored(place: Location, write: Callable[[Path], None], kind: str) -> None:
    """Write a folder into a store, as `recsys_emb.artifact.folder.write_folder` does on a disk."""
    store = Store(place)
    _refuse_foreign(store, kind)
    # Before the work: a bucket that is not there shows now.
    store.make()
    save = store.below(f"save-{secrets.token_hex(8)}")
    with store.staged() as folder:
        write(folder)
        seal(folder, kind)
        _upload(folder, save)
    # From here on nothing is taken back: whoever reads may have seen the new manifest.
    earlier = _parts(store, kind)
    name = posixpath.basename(save.place.path)
    store.put(MANIFEST, described({}, kind, current=name).encode())
    _clear_away(store, earlier, name)


def read_stored(place: Location, read: Callable[[Path], T], kind: str, late: Collection[str]) -> T:
    """Let ``read`` read a copy of a folder, as `recsys_emb.artifact.folder.read_folder` does on a disk."""
    store = Store(place)
    for _ in range(_ATTEMPTS):
        before = store.manifest
        try:
            listing = list_stored(place, kind)
            with store.staged() as folder:
                Store(listing.place).download([*listing.sizes, MANIFEST], folder)
                return read_sealed(folder, read, kind, late)
        except ArtifactError:
            # The save may have been replaced, and removed, meanwhile.
            if store.manifest == before:
                raise
    raise ArtifactError(
        f"{store.name}: expected a folder at rest, got one replaced {_ATTEMPTS} times while reading. Load it again."
    )


def list_stored(place: Location, kind: str) -> Listing:
    """List the files of the current save, and check that they are those of its manifest."""
    store = Store(place)
    save = store.below(current_save(_content(store, kind), store.name))
    content = _content(save, kind)
    sizes = {name: size for name, size in save.sizes.items() if name != MANIFEST}
    check_listed(check_manifest(content, kind, store.name), sizes, store.name)
    return Listing(save.place, content, sizes, store.changed)


def is_vacant(place: Location, kind: str) -> bool:
    """Whether nothing stands there, but what a dead writer may have left."""
    store = Store(place)
    return MANIFEST not in store.entries and not _strange(store, kind)


def _content(store: Store, kind: str) -> dict[str, Any]:
    """Read and check the manifest."""
    data = store.manifest
    if data is None:
        remedy = "Give a folder that save() wrote."
        raise ArtifactError(f"{store.name}: expected a folder with a {MANIFEST!r}, got nothing there. {remedy}")
    content = parse_json(data, MANIFEST)
    check_manifest(content, kind, store.name)
    return content


def _upload(folder: Path, save: Store) -> None:
    """Copy a folder up, or remove what got there."""
    try:
        save.upload(folder)
        _check_arrived(folder, save)
    except BaseException:
        with contextlib.suppress(ArtifactError):
            save.remove("")
        raise


def _check_arrived(folder: Path, save: Store) -> None:
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    wrong = {name for name, _ in set(save.sizes.items()) ^ set(sizes.items())}
    if wrong:
        got = f"{listed(sorted(wrong))} otherwise"
        raise ArtifactError(f"{save.name}: expected files to arrive as they were written, got {got}. Save it again.")


def _refuse_foreign(store: Store, kind: str) -> None:
    """Raise unless nothing would be lost by saving there."""
    got = "a whole store" if not store.place.path else "a file" if store.is_file else listed(_strange(store, kind))
    if got:
        raise ArtifactError(f"{store.name}: expected an artifact or an empty place, got {got}. Save elsewhere.")


def _strange(store: Store, kind: str) -> list[str]:
    """Names of what is neither a manifest, nor a save, nor named by the manifest."""
    entries = store.entries
    files = check_manifest(_content(store, kind), kind, store.name) if MANIFEST in entries else ()
    known = {MANIFEST, f"{MANIFEST}{BESIDE}", *(name.partition("/")[0] for name in files)}
    return sorted(one for one in entries if one not in known and not SAVE.fullmatch(one) and not is_litter(one))


def _parts(store: Store, kind: str) -> list[str]:
    """Names of what the manifest refers to: one save, or files beside it that somebody copied there."""
    if store.manifest is None:
        return []
    content = _content(store, kind)
    save = current_save(content, store.name)
    return [save] if save else list(check_manifest(content, kind, store.name))


def _clear_away(store: Store, earlier: list[str], current: str) -> None:
    """Remove the parts of the earlier save, and what dead writers left; the new one stands whatever happens here."""
    try:
        for name in earlier:
            store.remove(name)
        for name in filter(SAVE.fullmatch, store.entries):
            touched = store.below(name).touched
            if name != current and touched is not None and store.changed - touched > _ABANDONED:
                store.remove(name)
    except ArtifactError as error:
        warn_outside(f"Saved, but what was there before could not be removed and costs room. {error}")
