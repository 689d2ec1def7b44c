"""Memory of a service: what it frees goes back to the system."""

import ctypes

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
# The C library's own first value.
_LARGE = 128 * 1024


def return_large_blocks() -> None:
    """Have each large block of memory mapped apart, and unmapped as soon as it is freed.

    The C library raises its threshold for that, up to 32 MiB, when such a block is freed. From then
    on bodies and outputs of megabytes lie on the heap, which cannot shrink below the small object
    that came last: a service kept more than twice its memory after one burst of large answers.
    A C library without this setting is left as it is.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_MMAP_THRESHOLD, _LARGE)
