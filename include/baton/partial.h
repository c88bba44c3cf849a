/* Partial all-reduce in full: how an epoch takes contributions, what happens
   after a failure, all options of baton.h, and steps in the order of a stream.
   (Li et al. 2020, "Taming Unbalanced Training Workloads in Deep Learning with
   Partial Collective Operations", sections 4 and 5: eager-SGD.)

       contribute --> [pending]                       [history] --> wait
                          |                               ^
       activation ---> take ---> any inner builder ---> publish

   Contribute adds into the rank's pending contribution. An epoch takes all of
   the pending contribution, atomically, or nothing (a null contribution) while
   the application is in the middle of contributing. An epoch waits for the
   application only if the pending contribution would be too old for the next
   epoch (max_staleness, KEEP_ALL). A rank that starts the epoch gives its
   contribution at once; the others give theirs when the epoch is activated
   there (with CANDIDATES_ANY and 1 < mode_ranks < P, all ranks give theirs
   then). Each contribution is taken by exactly one epoch, so the sum of all
   results and pending contributions equals the sum of all contributions. The
   result of an epoch is the same on every rank, bit for bit.

   The k-th start belongs to epoch k. If that epoch has run without this rank,
   start and wait return at once, and a later epoch takes the contribution. All
   ranks start the same number of epochs. A rank on which the last epoch has
   ended may destroy its partial, even if that epoch still runs on other ranks.

   When an epoch has failed, all ranks recover the group (baton_group_recover).
   The contributions that the failed epoch had taken are pending again, unless
   another rank has completed the epoch: then its result there includes them. So
   each contribution is in exactly one result, across failures, too. But a rank
   may have missed the last result before the failure; therefore broadcast the
   weights of one rank after a recovery. Steps and epochs count from 1 again. In
   device memory the first epoch after a recovery takes only the returned
   contributions, and the second one those made since.

   With on_loss BATON_ON_LOSS_CONTINUE, ranks may be lost (baton_group_shrink
   says how). The survivors agree on the lost ranks, and go on with the next
   epoch; the program makes the same calls:
   - A thread of the library agrees with the other ranks, so a rank that
     computes delays nobody. With manual progress test, wait and destroy do
     that, and other blocking calls of Baton do not. While the ranks agree,
     start does not block, and wait takes longer.
   - Elections are among the survivors, a FULL epoch waits for them all, and
     mode_ranks is reduced to their number if it is larger. Results have that
     number (`living`); baton_partial_lives tells whether a rank survives.
   - Each epoch has one result, the same on all survivors: a result that one of
     them got before the loss is handed to the others. Steps, epochs and
     staleness count on. An epoch that only dead ranks had completed is run
     again.
   - A survivor's contribution is in one result, or pending. A dead rank's
     contribution is lost, unless a result includes it.
   - Ranks may be lost at any time, also while the others agree, until one is
     left. A rank that the others believe dead gets BATON_ERR_TRANSPORT for
     good, as do all on the smaller side of a partition (mpi.h): they may lack
     results that the larger side has. After other failures destroy the partial:
     it can't be recovered.
   - The partial has a group of its own, so the application may shrink `group`,
     use it for other schedules, and destroy it after the first epoch; until
     then a schedule in `group` compares the options of all ranks. All ranks
     destroy the partial; destroy waits until all survivors have called it, for
     at most BATON_DESTROY_MS.
   BATON_ERR_UNSUPPORTED: device memory, a simulated group, or an inner_arg
   (`inner` is called again after a loss, in the library's thread).
   BATON_ERR_SYSTEM: no thread could be created.

   In a cost-only simulation (sim.h) vectors have no memory. Contribute and
   pending don't touch `data`, which may be NULL; a result has no data and no
   count of active ranks. The ranks that take part in an epoch are the same as
   with data.

   With options.memory BATON_MEMORY_DEVICE contributions and results are in the
   memory of the engine's device (device.h), and a step may be in the order of a
   stream:

       backward<<<grid, block, 0, stream>>>(gradient);
       baton_partial_contribute_on(partial, gradient, stream);
       baton_partial_start_on(partial, stream);      // none of them blocks
       other_work<<<grid, block, 0, stream>>>();
       baton_partial_wait_on(partial, stream, sum);
       update<<<grid, block, 0, stream>>>(weights, sum);

   The rank contributes, and starts the step, when its stream gets there, not
   when the function is called; so a rank is late for an epoch if its stream is.

   Threads: any thread may contribute; one at a time may start, test or wait. */
#ifndef BATON_PARTIAL_H
#define BATON_PARTIAL_H

#include <baton/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- modes and options --------------------------------------------------

   The average number of ranks that contribute to an epoch, if ranks start one
   after another in random order, and each contributes before it starts (q and m
   stand for mode_ranks):

   SOLO            1.
   MAJORITY        (P + 1) / 2, and at least 1: the elected rank of the epoch,
                   and those that start before it. Nothing is counted, so fewer
                   than half may be active. The name is the paper's.
   QUORUM          q, and the ranks that start while q are counted. The count
                   takes fewer than 2 P messages (3 P beyond 144 ranks) along a
                   tree whose root is rank e mod P in epoch e; the activation
                   takes P - 1 more. QUORUM(1) is SOLO, QUORUM(P) is FULL.
   CANDIDATES_ANY  (P + 1) / (m + 1).
   CANDIDATES_ALL  m (P + 1) / (m + 1). With m = 1 both are MAJORITY, and cost
                   the same.

   keep            With KEEP_ALL wait returns epoch k's result at the k-th step.
                   Weights that get each result once stay the same on all ranks.
                   Staleness is at most `history`, and a rank that is always
                   slow sets the pace of all after `history` epochs. With
                   KEEP_LATEST, as in the paper, a late rank misses results, and
                   may get one twice (look at result.epoch): average the weights
                   of all ranks now and then.
   history         W, 1 to 2^20. With the default, 4, a delay of a few steps
                   holds up no other rank. A larger W tolerates longer delays;
                   each epoch of W costs `count` elements of memory, and
                   contributions may get one epoch older. W = 0 would be
                   BATON_FULL.
   max_staleness   S, 1 to 2^20; with KEEP_ALL 1 to W, since no contribution
                   gets older than that. An epoch that would exceed S for some
                   rank waits until that rank has started step epoch - S. So
                   every mode can keep every S.
   op              It must have an identity.
   inner,          Any all-reduce of coll.h, or your own; args->arg is
   inner_arg       inner_arg. Create calls it for each tensor of more than
                   BATON_PARTIAL_TREE_BYTES, and for the parts of the vector
                   before, between and after those.
   memory          It must be the same on all ranks. DEVICE needs a device
                   that has the reduction, and a group with payload (sim.h).
                   `tensors` is BATON_ERR_UNSUPPORTED with device memory:
                   contribute the whole vector, or create a partial for each
                   tensor.
   tensors, counts See "several tensors", below. They must be the same on all
                   ranks, and require host memory.
   count           With tensors it is 0, or the sum of their counts.

   result.included is false if an epoch began between two contributions to one
   step: the two are in different results then. (Tensors are always in one
   result together.)
   result.staleness is the age of this rank's oldest contribution that no
   earlier epoch took: the number of the epoch minus that of the contribution's
   step; 0 if there is none.
   result.data is unchanged until this rank's next wait. Work in streams that
   reads the data must have ended by then.

   Create builds and commits the partial's schedule; all ranks commit in the
   same order. Memory: (history + 5) * count elements, plus the inner builder's;
   on a device (history + 8) * count, and create blocks until the device has
   filled one of the vectors. A group without payload (baton_group_has_payload)
   takes none. Errors: BATON_ERR_INVALID, and commit's; with BATON_MEMORY_DEVICE
   BATON_ERR_UNSUPPORTED (the engine has no device, or the group's buffers have
   no memory) and baton_device_alloc's. Destroy frees results and pending
   contributions, unless it returns an error: then an epoch may still use that
   memory.

   Contribute does not wait for the engine; concurrent contributors take turns.
   In device memory contribute blocks until the device has added this data, and
   before it the data of earlier calls of contribute_on. With device memory only
   one thread at a time may contribute or start, and a call node may not. With
   KEEP_LATEST wait returns the latest epoch's result; with KEEP_ALL call wait
   once a step. Wait returns BATON_ERR_STATE before the first start. */

/* The modes, in the order of baton_partial_mode_t: enumerator, name in texts
   such as "quorum:16", and what follows this name, which is "" if the mode has
   no number of ranks (options.mode_ranks). */
/* clang-format off */
#define BATON_PARTIAL_MODE_LIST(X)                                             \
    X(SOLO, "solo", "") X(MAJORITY, "majority", "") X(FULL, "full", "")        \
    X(QUORUM, "quorum", ":Q") X(CANDIDATES_ANY, "any", ":M")                   \
    X(CANDIDATES_ALL, "all", ":M")
/* clang-format on */

/* The largest vector for which the default inner all-reduce (inner = NULL) uses
   trees, in bytes. A vector of at most this size is reduced up a tree to rank 0
   and broadcast down a binomial tree, with the fewest messages; so is any
   vector whose reduction does not commute. The tree up is binomial, or flat:
   all ranks send to rank 0. Up to 64 ranks of one host use the flat tree if the
   ranks that are expected to be active contribute at most this many bytes
   together; if more than one active rank is expected, they use it only where
   ranks outnumber processors. Longer vectors go round a ring, with the fewest
   bytes. */
#define BATON_PARTIAL_TREE_BYTES 1048576

/* ---- without copies -----------------------------------------------------

   Long vectors may be lent instead of copied, and results may be written to
   memory of the program, even to the lent vectors:

       for (i = tensors; i-- > 0;) {
           backward(i, gradients[i]);
           baton_partial_contribute_tensor_lent(partial, i, gradients[i]);
       }
       baton_partial_start(partial);
       ...                                  // gradients stay as they are
       baton_partial_wait_into(partial, -1, gradients, &result);

   A rank that is in time then makes one copy, of the result, or none if it
   reads result.data instead. The epoch itself does not write to `gradients`, so
   that the contribution can be pending again if the epoch fails.

   A lent vector is read, and must not change, until wait has returned for the
   step that is started next.
   - After BATON_ERR_TIMEOUT or _INTERRUPTED the step goes on, and so does the
     loan.
   - Otherwise wait copies a lent vector that is still needed: if the rank was
     late, so that a later epoch takes the vector, whatever the bound of
     staleness; or after an error, if the failed epoch had taken it.
   - BATON_ERR_STATE of wait, and any error of start, change nothing: the loan
     goes on until wait has returned for the next started step.
   - A recovery copies lent vectors, also those of a step that was not started,
     and ends the loans. Destroy ends loans without a copy if it returns
     BATON_OK.
   - With BATON_ON_LOSS_CONTINUE a loan goes on while ranks are lost.
   Short tensors, and tensors that are added to a contribution that is pending
   already, are copied instead of lent. Any thread may lend. */

/* Does what baton_partial_contribute does, except that a vector of more than
   BATON_PARTIAL_TREE_BYTES in main memory is lent, not copied: `data` must not
   change until the loan ends (see above). */
BATON_CHECKED baton_status_t
baton_partial_contribute_lent(baton_partial_t *partial, const void *data);

/* Waits as baton_partial_wait does, and on BATON_OK copies the result to
   `targets`: one address for each tensor (see below), NULL for tensors to leave
   out; or one address where there are no tensors. Memory that was lent to the
   step may be a target, since its loan has ended. Nothing is copied in a group
   whose buffers have no memory (baton_group_has_payload). BATON_ERR_INVALID:
   targets is NULL. BATON_ERR_UNSUPPORTED: device memory. Both are returned at
   once. */
BATON_CHECKED baton_status_t
baton_partial_wait_into(baton_partial_t *partial, int timeout_ms,
                        void *const *targets, baton_partial_result_t *out);

/* ---- several tensors ----------------------------------------------------

   With options.tensors the gradients of a model, or buckets of gradients, are
   contributed one by one as they are computed. An epoch takes either all
   tensors of a rank's step, or none:

       for (i = tensors; i-- > 0;) {
           backward(i, gradients[i]);
           baton_partial_contribute_tensor(partial, i, gradients[i]);
       }
       baton_partial_start(partial);
       ...                              // computes meanwhile
       baton_partial_wait(partial, -1, &result);
       for (i = 0; i < tensors; i++) {
           update(i, (const float *)result.data +
                         baton_partial_offset(partial, i));
       }

   (With a partial for each tensor, a step could be in time for some tensors'
   epochs, and late for others.) No epoch takes a tensor of a step before the
   step is started. If the rank is late for the epoch, a later epoch takes all
   of the step's tensors. Between start and wait the rank may already contribute
   to its next step.

   The tensors lie one after another in one vector, without gaps, and have one
   type. Results, whole contributions and pending contributions are vectors of
   this form, and all rules above hold for them. baton_partial_pending includes
   contributions to a step that was not started. No byte is sent before the
   start, as an epoch can't begin with a part of a contribution.

   To divide the vector into other tensors, let all ranks wait for the same last
   step. Then each rank contributes the pending contribution of the old partial
   (baton_partial_pending) to a new one, and destroys the old partial. */

/* Contributes counts[tensor] elements to one tensor of the step that is started
   next; several contributions to a tensor are added up. A tensor without a
   contribution is the identity. `data` is copied, and the caller's again. Any
   thread; a contribution is in the step if the call has returned before start
   is called. Contributing holds up no epoch: epochs take contributions to
   earlier steps. If start fails, the step's contributions are pending all the
   same. With options.tensors the partial has memory for one more vector.
   BATON_ERR_INVALID: there is no such tensor. */
BATON_CHECKED baton_status_t baton_partial_contribute_tensor(
    baton_partial_t *partial, size_t tensor, const void *data);

/* As baton_partial_contribute_tensor, but lends `data` (see above) if the
   tensor has more than BATON_PARTIAL_TREE_BYTES and nothing else is contributed
   to this tensor in the step. */
BATON_CHECKED baton_status_t baton_partial_contribute_tensor_lent(
    baton_partial_t *partial, size_t tensor, const void *data);

/* Returns the number of elements before a tensor in the vector. `tensor` is 0
   to options.tensors. */
size_t baton_partial_offset(const baton_partial_t *partial, size_t tensor);

/* ---- the end of an epoch ------------------------------------------------ */

/* Sets a function that is called when an epoch has ended on this rank, like
   baton_schedule_on_end. The function may contribute and start. Ignored with
   BATON_ON_LOSS_CONTINUE. */
void baton_partial_on_end(baton_partial_t *partial, baton_end_fn fn, void *arg);

/* ---- in the order of a stream ------------------------------------------

   For partials in device memory. None of these calls blocks the host or
   synchronises the device; one thread at a time makes them, and start. Up to 8
   contributions, 8 steps and 8 results may be in flight (with max_staleness: 8
   contributions and steps together). A call that would exceed this does nothing
   and returns BATON_ERR_BUSY: wait for a step then. BATON_ERR_UNSUPPORTED: the
   partial's memory is the host's. BATON_ERR_INVALID: a vector is not memory of
   this device. */

/* Contributes to the step that is started next, as baton_partial_contribute
   does, when the stream gets there: an epoch that begins earlier does not take
   the contribution. `data` is read in the order of the stream: work after this
   call may overwrite it. An epoch that begins while the device is adding the
   data waits for that, and takes it. If the device fails here, the contribution
   is lost, and test and wait of the step return the error. */
BATON_CHECKED baton_status_t baton_partial_contribute_on(
    baton_partial_t *partial, const void *data, baton_stream_t stream);

/* Starts a step, as baton_partial_start does, when the stream gets there. If
   peers have run the epoch by then, the stream does not wait. */
BATON_CHECKED baton_status_t baton_partial_start_on(baton_partial_t *partial,
                                                    baton_stream_t stream);

/* Work put into the stream from now on runs when the epoch of the last started
   step has ended, and its result is in `target`: `count` elements of device
   memory, or NULL for no copy. With BATON_KEEP_LATEST the copied result is the
   newest one at that time. If the epoch has failed, `target` is unchanged, and
   the stream goes on; test and wait return the error. Wait also returns the
   other fields of the result. With BATON_KEEP_ALL call either wait or wait_on,
   once a step. BATON_ERR_STATE: as for wait. */
BATON_CHECKED baton_status_t baton_partial_wait_on(baton_partial_t *partial,
                                                   baton_stream_t stream,
                                                   void *target);

/* ---- queries ------------------------------------------------------------ */

/* The partial's schedule, for the number and time of the last epoch and for the
   messages and bytes sent (baton_schedule_sent). The partial owns the schedule:
   do not start, wait for or destroy it. NULL with BATON_ON_LOSS_CONTINUE, as
   the schedule changes after a loss. */
const baton_schedule_t *baton_partial_schedule(const baton_partial_t *partial);

/* True as long as `rank`, of the group that was given to create, takes part:
   until the other ranks have agreed that it is lost. Any thread. */
bool baton_partial_lives(baton_partial_t *partial, int rank);

/* Copies this rank's pending contribution, which no epoch has taken yet, to
   `data`: count elements, the identity if there is none. *any_out: true if
   there is one. While epochs run this is a snapshot. With device memory this
   call blocks as baton_partial_contribute does, with the same rule for
   threads. */
BATON_CHECKED baton_status_t baton_partial_pending(baton_partial_t *partial,
                                                   void *data, bool *any_out);

/* The rank that BATON_MAJORITY elects for `epoch`: a function of its arguments
   alone. Each block of `size` epochs elects every rank once, in an order
   shuffled by the seed. So a contribution waits for fewer than 2 * size
   epochs. */
int baton_partial_elect(uint64_t seed, uint64_t epoch, int size);

#ifdef __cplusplus
}
#endif
#endif
