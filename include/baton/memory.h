/* Memory that the ranks of a host share, like that of MPI_Alloc_mem and
   ncclMemAlloc: peers on the same host read buffers in this memory in place. A
   receive from such memory is one plain copy. A reduction, as in an all-reduce,
   reads the peer's memory directly, without a copy.

   Otherwise this memory is like any other: it may be bound to any buffer of any
   group, used as source, target or both, and sent to ranks on other hosts. The
   library allocates ordinary memory instead, with the same results, in a group
   of one rank on its host, inside one process (where all memory is shared
   anyway), with BATON_SHM=0, beyond the limit that BATON_SHM_MEMORY sets, or if
   the host has no more memory to share. Ranks allocate independently; peers map
   the memory read-only with the first message from it.

   Threads: any, also in call nodes. A forked child shares these pages with its
   parent, and must not write to them. */
#ifndef BATON_MEMORY_H
#define BATON_MEMORY_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `bytes` bytes, aligned to 64 and not initialised, which are the
   caller's until baton_memory_free. Not collective. Blocks below 4 KiB are
   ordinary memory. Memory is reserved at once, so a lack of memory is an error
   here, not a signal later.

   BATON_ERR_INVALID: group or out is NULL, or bytes is 0. BATON_ERR_NO_MEMORY:
   the host, or this process's control group, has less memory left than that. */
BATON_CHECKED baton_status_t baton_memory_alloc(baton_group_t *group,
                                                size_t bytes, void **out);

/* Frees memory of baton_memory_alloc. NULL is allowed. No epoch that uses the
   memory may run. Schedules to which the memory is bound must be rebound or
   destroyed before their next start. Blocks may be freed in any order, but
   before their group is destroyed; destroy returns BATON_ERR_BUSY while any
   exist. The memory returns to the host when peers have unmapped it, which they
   do when they next make progress.

   BATON_ERR_BUSY: an epoch that uses the memory is running in the group's
   engine. BATON_ERR_INVALID: group is NULL, or the memory is not of
   baton_memory_alloc for this group, or was freed already. */
BATON_CHECKED baton_status_t baton_memory_free(baton_group_t *group,
                                               void *memory);

#ifdef __cplusplus
}
#endif
#endif
