/* Memory of one call: one block, kept for the next call, since fresh pages cost more than many a convolution; and its division
 * into buffers.
 *
 * One block is kept, whoever returned it last; concurrent callers that find none make their own.
 */
#ifndef CONVREG_WORKSPACE_H
#define CONVREG_WORKSPACE_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

typedef struct {
    size_t size;
    char padding[56]; /* what follows is aligned to a cache line */
} workspace_block;

static workspace_block *kept_workspace;

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* A block for `size` bytes, or NULL.  Small pages lie anywhere in physical memory, so that parts of a buffer may compete for the
 * same places of a cache, and calls of one process are slower than those of another; huge pages do not. */
static inline workspace_block *allocate_workspace(size_t size)
{
    size_t all = sizeof(workspace_block) + size, unit = 64; /* of alignment and size */
    workspace_block *block;
#ifdef MADV_HUGEPAGE
    if (all > HUGE_PAGE_BYTES / 2)
        unit = HUGE_PAGE_BYTES;
#endif
    all = (all + unit - 1) / unit * unit;
    block = aligned_alloc(unit, all);
    if (!block)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (unit == HUGE_PAGE_BYTES)
        madvise(block, all, MADV_HUGEPAGE); /* advice: without it the block serves as well */
#endif
    block->size = all - sizeof *block;
    return block;
}

/* `size` bytes aligned to 64, or NULL. */
static inline char *take_workspace(size_t size)
{
    workspace_block *block = __atomic_exchange_n(&kept_workspace, NULL, __ATOMIC_ACQUIRE);
    if (block && block->size < size) {
        free(block);
        block = NULL;
    }
    if (!block)
        block = allocate_workspace(size);
    return block ? (char *)(block + 1) : NULL;
}

static inline void return_workspace(char *memory)
{
    free(__atomic_exchange_n(&kept_workspace, (workspace_block *)memory - 1, __ATOMIC_ACQ_REL));
}

/* A workspace that is divided into buffers, one after the other.  The code that takes buffers runs twice: first without a
 * base, which counts bytes, then with a base and the capacity that was counted. */
typedef struct {
    char *base;       /* NULL: bytes are counted */
    int64_t used;
    int64_t capacity;
    int64_t last;     /* the end of the last guard, or 0 */
} workspace;

/* Guards, for tests: bytes between one buffer and the next that nothing may write. The last two numbers of a guard are its
 * beginning and the end of the guard before it. */
enum { GUARD_BYTES = 192, GUARD_BYTE = 0xa5 };

static int workspace_guarded;

static inline void set_workspace_guarded(int guarded)
{
    workspace_guarded = guarded;
}

/* A buffer of `size` bytes aligned to 64. */
static inline void *take(workspace *w, int64_t size)
{
    int64_t begin = w->used, end = begin + size, next = (end + 63) / 64 * 64;
    if (workspace_guarded)
        next += GUARD_BYTES;
    w->used = next;
    if (!w->base)
        return NULL;
    if (next > w->capacity) {
        fprintf(stderr, "convreg: a buffer exceeds the workspace of its call\n");
        abort();
    }
    if (workspace_guarded) {
        int64_t link[2] = {end, w->last};
        memset(w->base + end, GUARD_BYTE, next - end);
        memcpy(w->base + next - sizeof link, link, sizeof link);
        w->last = next;
    }
    return w->base + begin;
}

/* Whether some guard was written to. */
static inline int workspace_overrun(const workspace *w)
{
    for (int64_t last = w->last; last > 0;) {
        int64_t link[2];
        memcpy(link, w->base + last - sizeof link, sizeof link);
        if (link[0] < 0 || link[0] > last - (int64_t)sizeof link || link[1] < 0 || link[1] >= last)
            return 1;
        for (int64_t i = link[0]; i < last - (int64_t)sizeof link; i++)
            if ((unsigned char)w->base[i] != GUARD_BYTE)
                return 1;
        last = link[1];
    }
    return 0;
}

/* The call that runs while guards are on; others wait, so that writes find the buffers that they go to. */
static const workspace *guarded_call;

static inline void enter_workspace(const workspace *w)
{
    const workspace *none = NULL;
    while (workspace_guarded && !__atomic_compare_exchange_n(&guarded_call, &none, w, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        none = NULL;
        sched_yield();
    }
}

/* From now on the call's buffers are those of `w`. */
static inline void extend_workspace(const workspace *w)
{
    if (guarded_call)
        __atomic_store_n(&guarded_call, w, __ATOMIC_RELEASE);
}

static inline void leave_workspace(void)
{
    if (guarded_call)
        __atomic_store_n(&guarded_call, NULL, __ATOMIC_RELEASE);
}

static void __attribute__((noinline, cold)) find_room(const char *writer, const void *place, int64_t size)
{
    const workspace *w = __atomic_load_n(&guarded_call, __ATOMIC_ACQUIRE);
    int64_t begin = w ? (const char *)place - w->base : -1;
    for (int64_t last = w ? w->last : 0; last > 0;) {
        int64_t link[2];
        memcpy(link, w->base + last - sizeof link, sizeof link);
        if (begin >= link[1] && begin + size <= link[0])
            return;
        last = link[1];
    }
    fprintf(stderr, "convreg: %s writes %lld bytes beyond a buffer of its workspace\n", writer, (long long)size);
    abort();
}

/* While guards are on: whether `size` bytes from `place` on lie in one buffer; if not, the process ends before `writer` writes. */
static inline void check_room(const char *writer, const void *place, int64_t size)
{
    if (__builtin_expect(workspace_guarded, 0) && size > 0)
        find_room(writer, place, size);
}

#endif
