/* Groups without MPI: of processes that torchrun, a shell or another program
   has started. The ranks meet in a store: a place that all of them can write to
   and read from, such as a folder. Only the making of a group uses the store.

       baton_store_t store;
       baton_store_open_folder("/tmp/my-job", &store);
       baton_group_create_store(engine, &store, rank, size, "all", 60000,
                                &group);
       baton_store_close_folder(&store); */
#ifndef BATON_STORE_H
#define BATON_STORE_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A store, as the application supplies it: values by key. A key has up to 160
   letters, digits and the characters ". _ -". The calls come from the thread
   that makes a group, one at a time, and should take milliseconds at most. A
   status other than those named here ends the making of the group with that
   status. */
typedef struct baton_store {
    void *context; /* passed to each function */
    /* Stores a value of `bytes` bytes, in place of an earlier one. Another rank
       sees either the whole value or none. */
    baton_status_t (*put)(void *context, const char *key, const void *value,
                          size_t bytes);
    /* Copies the first `capacity` bytes of the value, or fewer if it is
       shorter, and stores the size of the whole value; does not wait.
       BATON_AGAIN: there is no value of the key yet. */
    baton_status_t (*get)(void *context, const char *key, void *value,
                          size_t capacity, size_t *bytes_out);
    /* Removes the value. Another rank that calls `get` at the same time gets
       the value or BATON_AGAIN. NULL: the store keeps all values. Then groups
       of different sizes need different names, since the records of an earlier
       group, which contain its size, are still there. */
    void (*remove)(void *context, const char *key);
} baton_store_t;

/* Fills in a store that keeps its values as files of the folder `path`, which
   exists. baton_store_close_folder frees what `store` holds; it leaves files of
   the folder where they are. BATON_ERR_INVALID: a pointer is NULL;
   BATON_ERR_SYSTEM: the folder can't be opened; BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t baton_store_open_folder(const char *path,
                                                     baton_store_t *out);
void baton_store_close_folder(baton_store_t *store);

/* Creates a group of `size` processes, this one being rank `rank`. Collective:
   blocks until all ranks have called it with the same `size` and `name`. The
   store may be removed after the call has returned on rank 0, or, if all ranks
   are on one host, on any rank.

   name: up to 100 letters, digits and the characters ". _ -". If a group could
   not be made, take another name for the next attempt, since values of the
   failed attempt may be left in the store.
   timeout_ms: longest wait for ranks that have not called it; negative means
   for ever. BATON_ERR_TIMEOUT names these ranks.

   The group is like one of baton_group_create_mpi (mpi.h), and needs no
   MPI_Init. Processes of one host that may not read each other's memory copy
   long messages in small parts, which is slower. Between hosts, and between
   processes that can share no memory, messages go over UCX, which is loaded
   then: all ranks get BATON_ERR_UNSUPPORTED if this library was built without
   UCX on a rank, or can't open libucp.so.0 there. BATON_ERR_TRANSPORT: a rank
   ended meanwhile, or has not answered for BATON_PEER_TIMEOUT_MS; or an error
   of UCX. BATON_ERR_INVALID, _NO_MEMORY, _MISMATCH (another version of Baton,
   or another size). */
BATON_CHECKED baton_status_t baton_group_create_store(
    baton_engine_t *engine, const baton_store_t *store, int rank, int size,
    const char *name, int timeout_ms, baton_group_t **out);

/* Creates a group of all processes that one program has started: mpirun, srun,
   torchrun, or a shell that sets RANK and WORLD_SIZE. Collective: all of them
   make such groups in the same order. Without such a program the group has this
   process alone.

   The variables of the program tell the rank and the size: RANK, WORLD_SIZE;
   else those of Open MPI; else those of MPICH; else those of Slurm. The ranks
   meet in a folder: on one host in one that this call makes in /tmp and
   removes, on several hosts in the one that BATON_STORE names. The group does
   not use MPI, even if mpirun has started the ranks.

   timeout_ms and the errors are those of baton_group_create_store.
   BATON_ERR_INVALID: also if a variable is wrong, or if the ranks are on
   several hosts and BATON_STORE is not set. BATON_ERR_SYSTEM: the folder can't
   be made, or belongs to another user. */
BATON_CHECKED baton_status_t baton_group_create_world(baton_engine_t *engine,
                                                      int timeout_ms,
                                                      baton_group_t **out);

/* ---- processes that join ---------------------------------------------------

   Elastic training: ranks that are lost are replaced, or a group grows.

       baton_group_reconfigure(old, &store, 4, "job", 60000, &group); // each
                                                    // rank of `old` that lives
       baton_group_join(engine, &store, "job", 60000, &group);  // new processes

       for (root = 0; baton_group_origin(group, root) < 0; root++) {
       }
       baton_broadcast_now(group, weights, count, BATON_F32, root);

   Creates a group of `size` ranks: those of `old` that live, and as many new
   processes as it takes. Collective over the ranks of `old` that live, with the
   same `size` and `name`; whether any was lost does not matter, and there may
   be no new ones. The ranks keep their numbers, except those that are `size` or
   above; these and the new processes get the numbers that are free. On all
   ranks baton_group_origin returns the number that a rank had in `old`. It
   returns -1 for a new process, which lacks the state of the others.

   `old` is not changed, and can be used as before. Destroy both. If the call
   fails, call it again: `name` may be the same all the time. While the call
   fails on one rank, it may still wait on another rank for a moment.

   timeout_ms: longest wait for ranks of `old` to call, and then for new
   processes. BATON_ERR_TIMEOUT says how many have come. BATON_ERR_INVALID: also
   if more than `size` ranks live (use baton_group_create_sub).
   BATON_ERR_MISMATCH: another `size` on another rank. BATON_ERR_TRANSPORT: a
   rank has been lost during the call, or see baton_group_shrink. A process that
   is lost while the new group is being made is waited for up to
   BATON_PEER_TIMEOUT_MS. Other errors as of baton_group_create_store, which
   makes the new group. */
BATON_CHECKED baton_status_t baton_group_reconfigure(baton_group_t *old,
                                                     const baton_store_t *store,
                                                     int size, const char *name,
                                                     int timeout_ms,
                                                     baton_group_t **out);

/* Joins a group: blocks until its ranks call baton_group_reconfigure with this
   `name`. The group tells this process its rank and size. If more processes
   call than there are places, those that are left go on waiting for places.
   BATON_ERR_TIMEOUT: there was no place within timeout_ms. If the call fails
   for another reason, call it again. */
BATON_CHECKED baton_status_t baton_group_join(baton_engine_t *engine,
                                              const baton_store_t *store,
                                              const char *name, int timeout_ms,
                                              baton_group_t **out);

#ifdef __cplusplus
}
#endif
#endif
