"""The sizes of the processor's caches, which plans keep what they meet again in.

uses: nothing
gives: COLLIDING_BYTES, middle_cache, nearest_cache
"""

cdef extern from "core/caches.h":
    int64_t nearest_cache_bytes()
    int64_t middle_cache_bytes()

cdef enum:
    COLLIDING_BYTES = 4096  # between numbers that share a set of the nearest cache, and each need a page

cdef int64_t nearest_cache = nearest_cache_bytes()
cdef int64_t middle_cache = middle_cache_bytes()
