/* Memory for one call, kept for the next: fresh pages cost more than many a convolution.
 *
 * One block is kept, whoever returned it last; concurrent callers that find none make their own.
 */
#ifndef CONVREG_WORKSPACE_H
#define CONVREG_WORKSPACE_H

#include <stddef.h>
#include <stdlib.h>

typedef struct {
    size_t size;
    char padding[56]; /* what follows is aligned to a cache line */
} workspace;

static workspace *kept_workspace;

/* `size` bytes aligned to 64, or NULL. */
static inline char *take_workspace(size_t size)
{
    workspace *block = __atomic_exchange_n(&kept_workspace, NULL, __ATOMIC_ACQUIRE);
    if (block && block->size < size) {
        free(block);
        block = NULL;
    }
    if (!block) {
        block = aligned_alloc(64, sizeof *block + (size + 63) / 64 * 64);
        if (!block)
            return NULL;
        block->size = size;
    }
    return (char *)(block + 1);
}

static inline void return_workspace(char *memory)
{
    free(__atomic_exchange_n(&kept_workspace, (workspace *)memory - 1, __ATOMIC_ACQ_REL));
}

#endif
