"""The size of the processor's middle cache, which plans keep what they meet again in.

uses: nothing
gives: middle_cache
"""

cdef extern from "core/caches.h":
    int64_t middle_cache_bytes()

cdef int64_t middle_cache = middle_cache_bytes()
