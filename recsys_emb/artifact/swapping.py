"""Folders beside their target: written there unseen, put in place in one step, and cleared away after a crash."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextlib.contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """Make an empty folder next to ``target`` and remove what stands there in the end, whatever happened.

    While it is open nobody takes it for what a killed process has left; such leftovers of earlier writers are cleared
    away first.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(target)
    beside, lock = _claim(target)
    try:
        yield beside
    finally:
        # Either half-written, or what stood at the target before the swap.
        shutil.rmtree(beside, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def install(beside: Path, target: Path) -> None:
    """Give a finished folder the target's name; afterwards an earlier one, if any, stands beside."""
    flush(beside)
    try:
        beside.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _exchange(beside, target):
            _move_aside(beside, target)
    _flush_one(target.parent)


def flush(folder: Path) -> None:
    """Bring files and folders to the disk before their name gets there."""
    for path in (*folder.rglob("*"), folder):
        _flush_one(path)


def _flush_one(path: Path) -> None:
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _claim(target: Path) -> tuple[Path, int | None]:
    """Make a folder with a name of its own and lock it: a lock ends with its process, however that ends."""
    while True:
        beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        beside.mkdir()
        lock = _locked(beside)
        # Somebody who cleared away may have taken it for a leftover before it was locked.
        if lock is None or (lock >= 0 and beside.exists()):
            return beside, lock
        if lock >= 0:
            os.close(lock)


def _clear_leftovers(target: Path) -> None:
    """Remove folders that writers of this target left when they were killed."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}(\.old)?")
    for path in target.parent.iterdir():
        match = name.fullmatch(path.name)
        # An earlier folder that was moved aside is all there is until the new one has its name.
        if match is None or not path.is_dir() or (match[1] and not target.exists()):
            continue
        lock = _locked(path)
        if lock is not None and lock >= 0:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """Lock a folder and give the handle to close; -1 where another process holds it, None where locks do not work."""
    if sys.platform == "win32":
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        return -1 if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return handle


def _move_aside(beside: Path, target: Path) -> None:
    """Swap in two steps; put the earlier folder back when the second one fails."""
    aside = beside.with_name(f"{beside.name}.old")
    target.rename(aside)
    try:
        beside.rename(target)
    except OSError:
        aside.rename(target)
        raise
    aside.rename(beside)


def _exchange(first: Path, second: Path) -> bool:
    """Swap the names of two folders in one step; False where the system cannot."""
    if sys.platform == "win32":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    if hasattr(library, "renameat2"):
        return bool(library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)
    if hasattr(library, "renamex_np"):
        return bool(library.renamex_np(names[0], names[1], _RENAME_EXCHANGE) == 0)
    return False
