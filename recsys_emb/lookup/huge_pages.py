"""Large pages for tables: random rows then cost fewer walks through the page table."""

from __future__ import annotations

import ctypes
import mmap
import sys

from torch import Tensor

# Smaller tables fit into few pages of any size.
_WORTH_IT = 2**24


def ask_for_huge_pages(tensor: Tensor) -> None:
    """Ask the system to back a fresh CPU tensor by huge pages; a hint, without effect where there are none.

    To be called before anything is written to the tensor.
    """
    size = tensor.numel() * tensor.element_size()
    if sys.platform != "linux" or tensor.device.type != "cpu" or size < _WORTH_IT:
        return
    start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (tensor.data_ptr() + size) // mmap.PAGESIZE * mmap.PAGESIZE
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    madvise(start, end - start, mmap.MADV_HUGEPAGE)
