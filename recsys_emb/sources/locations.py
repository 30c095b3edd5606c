"""Where a path or a URI leads: a file system and a path in it, which travel as the text alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
from pyarrow import fs

from recsys_emb.errors import DataError

_SECRET = re.compile(r"secret|password|token|credential|account_?key|access_?key", re.IGNORECASE)
_GOOGLE, _LIMIT = ("gs", "gcs"), "retry_limit_seconds"
# What a Path makes of a URI; a disk of Windows has one letter.
_CUT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
# A user and a secret before the host; a secret with a slash in it ends what reads as the host.
_SIGNED = re.compile(r"[^/@]*:[^/@]*@|[^/@:]*:\d*[^/@\d][^@]*@")


@dataclass(frozen=True, eq=False)
class Location:
    """A place in a file system.

    Parameters
    ----------
    name
        The path or URI that it was found by.
    filesystem, path
        Where it is.

    Notes
    -----
    What a pickle holds is the text: another process opens the file system anew, with credentials of its own. Nothing
    secret is in the text either, since `locate` refuses it.
    """

    name: str
    filesystem: fs.FileSystem
    path: str

    @property
    def is_local(self) -> bool:
        """Whether it is on a disk of this machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def __reduce__(self) -> tuple[Any, ...]:
        """Find it anew."""
        return locate, (self.name if is_uri(self.name) else self.path,)


def is_uri(text: str) -> bool:
    """Whether a text is a URI, not a path.

    >>> is_uri("s3://bucket/rows"), is_uri("C:/rows"), is_uri("rows")
    (True, False, False)
    """
    return "://" in text


def locate(text: str) -> Location:
    """Find the file system that a path or a URI means; ``~`` in a path is the home folder.

    Raises
    ------
    DataError
        When it is a URI of an unknown kind, cannot be opened, lost a slash, or has credentials in it.
    """
    if not is_uri(text):
        _refuse_one_slash(text)
        return Location(text, fs.LocalFileSystem(), _absolute(text))
    _refuse_secrets(text)
    with explained(text, "a URI that can be opened", "Check it.", DataError):
        filesystem, path = from_uri(text)
    return Location(text, filesystem, path.rstrip("/") or path)


def path_text(path: str | os.PathLike[str], where: str) -> str:
    """Give a path or a URI as text.

    Raises
    ------
    DataError
        When it is neither; ``where`` it was asked for.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise DataError(f"{where}: expected a path, got {path!r}. Give a text or a Path.")
    return os.fspath(path)


def local_path(path: str | os.PathLike[str], where: str) -> Path:
    """Give a path on this machine, for what cannot be elsewhere.

    Raises
    ------
    DataError
        When it is in a store, or is no path; ``where`` it was asked for.
    """
    place = locate(path_text(path, where))
    if not place.is_local:
        raise DataError(f"{where}: expected a path on this machine, got {place.name}. Copy what is there.")
    return Path(place.path)


def from_uri(uri: str) -> tuple[fs.FileSystem, str]:
    """Open the file system of a URI, as Arrow does."""
    filesystem, path = fs.FileSystem.from_uri(limited(uri))
    return filesystem, path


def limited(uri: str) -> str:
    """Have Google's store give up after half a minute of retries; its client goes on for many, also without a network.

    >>> limited("gs://bucket/rows"), limited("gs://bucket/rows?retry_limit_seconds=5"), limited("s3://bucket/rows")
    ('gs://bucket/rows?retry_limit_seconds=30', 'gs://bucket/rows?retry_limit_seconds=5', 's3://bucket/rows')
    """
    scheme, _, rest = uri.partition("://")
    _, mark, query = rest.partition("?")
    if scheme not in _GOOGLE or any(key == _LIMIT for key, _ in parse_qsl(query, keep_blank_values=True)):
        return uri
    return f"{uri}{'&' if mark else '?'}{_LIMIT}=30"


@contextmanager
def explained(where: str, expected: str, remedy: str, error: Callable[[str], Exception]) -> Iterator[None]:
    """Say what was asked of a file system, and where: it does not."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, json.JSONDecodeError) as cause:
        reason = " ".join(str(cause).split()).rstrip(".")
        raise error(f"{where}: expected {expected}, got an error: {reason}. {remedy}") from cause


def _absolute(path: str) -> str:
    try:
        return Path(path).expanduser().absolute().as_posix()
    except RuntimeError as error:
        raise DataError(f"{path}: expected '~' to be a home folder, got none. Write the path out.") from error


def _refuse_one_slash(path: str) -> None:
    if _CUT.match(path):
        raise DataError(f"{path}: expected '://' in a URI, got one slash. Give a URI as text: a Path drops a slash.")


def _refuse_secrets(uri: str) -> None:
    """Refuse a URI that must not stand in a message, a pickle or a file."""
    scheme, _, rest = uri.partition("://")
    place, _, query = rest.partition("?")
    signed = _SIGNED.match(place)
    if signed or any(_SECRET.search(key) for key, _ in parse_qsl(query, keep_blank_values=True)):
        raise DataError(
            f"{scheme}://{place[signed.end() if signed else 0 :]}: expected a URI without credentials, got some in it. "
            "Keep them where the store's own tools look: the environment, a profile or a role."
        )
