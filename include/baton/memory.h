/* Memory that the ranks of a host share, as MPI_Alloc_mem and ncclMemAlloc give
   it: buffers for schedules that peers on the same host read where they lie. A
   receive out of such memory is one plain copy; and a sum of such memory, as in
   an all-reduce, reads it straight from the peer, without a copy.

   Nothing else is different: it may be bound to any buffer of any group, used
   as source, target or both, and sent to ranks on other hosts. Where ranks
   can't share memory it is ordinary memory, and results are the same: in a
   group of one rank on its host, inside one process (where all memory is shared
   anyway), with BATON_SHM=0, beyond BATON_SHM_MEMORY, or when the host has no
   memory left to share. Each rank allocates by itself; peers map it with the
   first message out of it, read-only.

   Threads: any thread may make these calls, also in a call node. A child of
   fork has the same pages as its parent: it must not write to them. */
#ifndef BATON_MEMORY_H
#define BATON_MEMORY_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `bytes` bytes, aligned to 64 and not initialised, which are the
   caller's until baton_memory_free. Not collective, and waits for no other
   rank. Blocks smaller than 4 KiB are ordinary memory. Reserved at once: a lack
   of memory is an error here, not a signal later.

   BATON_ERR_INVALID: group or out is NULL, or bytes is 0. BATON_ERR_NO_MEMORY.
 */
BATON_CHECKED baton_status_t baton_memory_alloc(baton_group_t *group,
                                                size_t bytes, void **out);

/* Frees it. NULL is allowed. No epoch that uses the memory may run; a schedule
   that it is bound to may exist, if it is rebound or destroyed before its next
   start. Blocks may be freed in any order, but before their group is destroyed:
   that reports BATON_ERR_BUSY while there are some. What peers have mapped is
   returned to the host when they next make progress.

   BATON_ERR_BUSY: an epoch that uses it is running in the group's engine.
   BATON_ERR_INVALID: group is NULL, or the memory is not what
   baton_memory_alloc gave for this group, or was freed already. */
BATON_CHECKED baton_status_t baton_memory_free(baton_group_t *group,
                                               void *memory);

#ifdef __cplusplus
}
#endif
#endif
