/* A group: P ranks, numbered from 0, that can send each other messages. Each
   rank has an object of its own, in its engine; several groups may share an
   engine, and their messages never meet.

   Groups are made from an MPI communicator (mpi.h), inside one process
   (inproc.h, or alone, below), from a transport of your own (transport.h), or
   by the simulator (sim.h).

   Threads: any thread may make these calls. */
#ifndef BATON_GROUP_H
#define BATON_GROUP_H

#include <baton/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_group baton_group_t;

/* Makes a group of one rank, for schedules without peers. */
BATON_CHECKED baton_status_t baton_group_create_self(baton_engine_t *engine,
                                                     baton_group_t **out);

int baton_group_rank(const baton_group_t *group);
int baton_group_size(const baton_group_t *group); /* ranks, P */

/* The engine that the group was made in; NULL for NULL. */
baton_engine_t *baton_group_engine(const baton_group_t *group);

/* Whether the buffers of this group have memory. False in a cost-only
   simulation (sim.h), where call nodes must not touch data. */
bool baton_group_has_payload(const baton_group_t *group);

/* True for a group of the simulator: one thread builds the schedules of all its
   ranks, so none of them can wait for another meanwhile. */
bool baton_group_is_simulated(const baton_group_t *group);

/* Keeps a pointer with the group, as an attribute of an MPI communicator: one
   for each `key`, which is an address of the caller's choice. The first that is
   set stays; a value of NULL only asks. Returns what is kept: `value`, or what
   was set before; NULL if nothing is, or if there is no memory. `destroy`
   (NULL: nothing) gets the value when the group is destroyed. */
typedef void (*baton_attribute_destroy_fn)(void *value);
void *baton_group_attribute(baton_group_t *group, const void *key, void *value,
                            baton_attribute_destroy_fn destroy);

/* Makes a group usable again after a failure. Collective: all ranks of the
   group call it, whether an epoch failed there or not. Epochs that still run
   are cancelled first. When it returns, the group's schedules are as after
   their commit, on all ranks: their next epoch is number 1, and no message of
   an earlier epoch can arrive any more.

   Waits for at most timeout_ms milliseconds, or without a limit when that is
   negative; with 0 it does what can be done at once. BATON_ERR_TIMEOUT names a
   rank that has not come: call it again to go on. BATON_ERR_FAILED: the group
   is recovered, but some schedules can't be (a peer has destroyed its own, or
   committed a different one), and stay failed. BATON_ERR_TRANSPORT: a rank is
   gone. BATON_ERR_STATE in a call node. */
BATON_CHECKED baton_status_t baton_group_recover(baton_group_t *group,
                                                 int timeout_ms);

/* Makes a group of the ranks of `group` that live, after some are lost: their
   processes have been killed, their hosts do not answer, or they have destroyed
   the group after a loss. Collective over those that live: all call it, whether
   they have noticed the loss or not. They get new ranks, in the order of the
   old ones (baton_group_origin), and the survivors' group sends its messages
   over what the old one has opened: the dead have no part in it, and no MPI
   collective is called. Schedules are made anew on it, partial and sparse
   collectives, too; what those have kept for later can be exported and imported
   (sparse.h). Without a loss this gives a copy of the group. It can be shrunk
   again, and so can the survivors' group.

   Whoever knows of a loss tells the others, who may not have noticed it. What
   is agreed on: the ranks that return BATON_OK, and are alive when the last of
   them does, have the same members in their groups, also if more ranks die
   meanwhile. One that dies late may still be a member: the new group loses it
   at once, and is shrunk in turn. No rank that lives is left out, unless
   another one believes it dead: then it gets BATON_ERR_TRANSPORT. A rank is
   told as soon as all that live have come, whatever the dead did.

   Waits for at most timeout_ms milliseconds, or without a limit when that is
   negative. BATON_ERR_TIMEOUT names a rank that has not come: call it again to
   go on. BATON_ERR_UNSUPPORTED: a group of the simulator. BATON_ERR_LIMIT: more
   than 1984 ranks. BATON_ERR_STATE in a call node. BATON_ERR_NO_MEMORY: call it
   again.

   The old group stays as it is: schedules that need a lost rank fail. The two
   are destroyed in any order, and neither waits for the dead. */
BATON_CHECKED baton_status_t baton_group_shrink(baton_group_t *group,
                                                int timeout_ms,
                                                baton_group_t **survivors_out);

/* The rank that `rank` has in the group that this one was made of by
   baton_group_shrink: the same one for other groups, -1 for no rank. */
int baton_group_origin(const baton_group_t *group, int rank);

/* Destroys the group. NULL is allowed. Its schedules must have been destroyed
   before, and its memory (memory.h) freed: BATON_ERR_BUSY says what was not.
   Waits until peers that still have such schedules have been told; collective
   for a group over MPI, whose ranks answer each other until all have come to
   that. At most BATON_DESTROY_MS. */
BATON_CHECKED baton_status_t baton_group_destroy(baton_group_t *group);

#ifdef __cplusplus
}
#endif
#endif
