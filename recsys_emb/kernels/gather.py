"""The order in which rows are gathered: a shuffle that knows the cache."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recsys_emb.kernels.jit import inlined, kernel

Keys: TypeAlias = npt.NDArray[np.uint64]
Order: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]

# A bucket holds about this many rows (as a power of two), so that its random swaps stay in the cache ...
_BUCKET_BITS = 13
# ... and there are at most this many buckets, so that scattering writes to few places at a time.
_MOST_BUCKETS_BITS = 11
_GOLDEN = 0x9E3779B97F4A7C15
_MIXERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEP, _MIX_1, _MIX_2 = (np.uint64(constant) for constant in (_GOLDEN, *_MIXERS))
_64_BITS = 2**64 - 1


def bucket_bits(size: int) -> int:
    """Logarithm of the number of buckets for ``size`` rows.

    >>> bucket_bits(100), bucket_bits(10**6)
    (0, 7)
    """
    return min(max(size.bit_length() - _BUCKET_BITS, 0), _MOST_BUCKETS_BITS)


@inlined
def _random(key: Any, number: Any) -> Any:
    """Draw ``number`` of the splitmix64 stream ``key`` (Steele, Lea & Flood, 2014)."""
    state = key + np.uint64(number) * _STEP
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))


@inlined
def _bucket(key: Any, row: Any, bits: Any) -> Any:
    return np.int64(_random(key, row) >> np.uint64(64 - bits)) if bits else np.int64(0)


@kernel
def shuffle(keys: Keys, bits: int, order: Order) -> None:
    """Fill ``order``, int32 or int64 ``(N,)``, with 0 … N-1 in an order drawn evenly from all N! orders.

    Every row goes to one of ``2**bits`` buckets at random, then each bucket is shuffled in place (Rao, 1961;
    Sandelius, 1962; Fisher & Yates, 1938): even for any number of buckets. ``keys``, uint64 ``(2,)``, name the two
    random streams. A draw below m departs from evenness by m/2**53.
    """
    ends = np.zeros((1 << bits) + 1, np.int64)
    for row in range(len(order)):
        ends[_bucket(keys[0], row, bits) + 1] += 1
    for bucket in range(1 << bits):
        ends[bucket + 1] += ends[bucket]
    places = ends.copy()
    for row in range(len(order)):
        bucket = _bucket(keys[0], row, bits)
        order[places[bucket]] = row
        places[bucket] += 1
    for bucket in range(1 << bits):
        first = ends[bucket]
        for last in range(ends[bucket + 1] - 1, first, -1):
            share = np.float64(_random(keys[1], last) >> np.uint64(11)) * 2.0**-53
            other = first + np.int64(share * np.float64(last - first + 1))
            order[last], order[other] = order[other], order[last]


def shuffle_reference(keys: Keys, bits: int, order: Order) -> None:
    """Do what `shuffle` does, plainly."""
    scatter, swap = (int(key) for key in keys)
    buckets: list[list[int]] = [[] for _ in range(2**bits)]
    for row in range(len(order)):
        buckets[_random_reference(scatter, row) * 2**bits >> 64].append(row)
    start = 0
    for rows in buckets:
        for last in range(len(rows) - 1, 0, -1):
            share = (_random_reference(swap, start + last) >> 11) * 2.0**-53
            other = int(share * (last + 1))
            rows[last], rows[other] = rows[other], rows[last]
        order[start : start + len(rows)] = rows
        start += len(rows)


def _random_reference(key: int, number: int) -> int:
    state = key + number * _GOLDEN & _64_BITS
    for shift, mixer in zip((30, 27), _MIXERS, strict=True):
        state = (state ^ state >> shift) * mixer & _64_BITS
    return state ^ state >> 31
