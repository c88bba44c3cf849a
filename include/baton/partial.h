/* Partial all-reduce in full: what an epoch takes, what a failure does, what
   the options of baton.h mean in detail, and steps in the order of a stream.
   (Li et al. 2020, "Taming Unbalanced Training Workloads in Deep Learning with
   Partial Collective Operations", sections 4 and 5: eager-SGD.)

       contribute --> [pending]                       [history] --> wait
                          |                               ^
       activation ---> take ---> any inner builder ---> publish

   Contribute adds into the rank's pending contribution. An epoch takes all of
   it, atomically, or nothing (a null contribution) while the application is in
   the middle of contributing. It waits for the application only if what is
   pending would be too old for the next epoch (max_staleness, KEEP_ALL). A rank
   that starts the epoch gives its contribution at once; the others give theirs
   when the epoch is activated there (with CANDIDATES_ANY and 1 < m < P, all
   ranks do). Exactly one epoch takes each contribution, so the sum of all
   results plus what is pending equals the sum of all contributions. The result
   of an epoch is the same on every rank, bit for bit.

   The k-th start belongs to epoch k. If that epoch has run without this rank,
   start and wait return at once, and a later epoch takes the contribution. All
   ranks start the same number of epochs. A rank that has ended the last one may
   destroy its partial; the others may still be on their way.

   When an epoch has failed, all ranks recover the group (baton_group_recover).
   What the failed epoch had taken is pending again. If the epoch was completed
   on another rank, that rank has its result, which includes what was taken. So
   each contribution is in exactly one result, across failures, too. But a rank
   may have missed the last result before the failure; to mend that, training
   sends the weights of one rank to all. Steps and epochs count from 1 again. In
   device memory the epoch after a recovery takes only what was given back, and
   the next one what was contributed since.

   With on_loss BATON_ON_LOSS_CONTINUE a lost rank (baton_group_shrink) is one
   that is never active. The survivors agree on who they are, and go on with the
   next epoch, by the same calls:
   - A thread of the library does that, so a rank that computes delays nobody;
     with manual progress test, wait and destroy do it, and other calls of
     Baton that block do not. Meanwhile start does not block, and wait takes
     longer.
   - Elections are among the living, a FULL epoch waits for them, and q and m
     are at most their number. Results tell how many live (`living`), and
     baton_partial_lives which ranks do.
   - Each epoch has one result, the same on all survivors: what one of them got
     before the loss is handed to those that missed it. Steps, epochs, staleness
     and its bounds go on. An epoch that only dead ranks had ended is run again.
   - What a survivor contributed is in one result, or pending. What a dead rank
     contributed is lost, unless a result has it.
   - Ranks may be lost at any time, also while the others agree, until one is
     left. A rank that the others believe dead gets BATON_ERR_TRANSPORT for
     good, as do all on the smaller side of a partition (mpi.h): they may lack
     results that the larger side has. After other failures destroy the partial:
     it can't be recovered.
   - The partial has a group of its own, so the application may shrink `group`,
     use it for other things, and destroy it after the first epoch: until then
     a schedule there compares the options of all ranks. All ranks destroy the
     partial; destroy waits until the survivors have called it, for
     BATON_DESTROY_MS at most.
   BATON_ERR_UNSUPPORTED: device memory, a simulated group, inner_arg (`inner`
   builds again, in the library's thread). BATON_ERR_SYSTEM: no thread.

   In a cost-only simulation (sim.h) vectors have no memory. Contribute and
   pending don't touch `data`, which may be NULL; a result has no data and no
   count of active ranks. Which ranks take part is still right.

   With options.memory BATON_MEMORY_DEVICE contributions and results are in the
   memory of the engine's device (device.h), and a step may be in the order of a
   stream:

       backward<<<grid, block, 0, stream>>>(gradient);
       baton_partial_contribute_on(partial, gradient, stream);
       baton_partial_start_on(partial, stream);      // none of them blocks
       other_work<<<grid, block, 0, stream>>>();
       baton_partial_wait_on(partial, stream, sum);
       update<<<grid, block, 0, stream>>>(weights, sum);

   The rank contributes, and arrives at the step, when its stream gets there,
   not when the function is called; so it is late for an epoch if its stream is.

   Threads: contribute from any thread, start / test / wait from one at a time.
 */
#ifndef BATON_PARTIAL_H
#define BATON_PARTIAL_H

#include <baton/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- modes and options --------------------------------------------------

   How many ranks are active, on average, if ranks arrive one after another in
   random order, and each contributes before it starts:

   SOLO            1.
   MAJORITY        (P + 1) / 2, and at least 1: those that arrive before the one
                   rank that is elected for the epoch. Nothing is counted, so
                   fewer than half may be in an epoch. The name is the paper's.
   QUORUM          q, which are counted, and those that start meanwhile. The
                   count takes fewer than 2 P messages (3 P beyond 144 ranks)
                   along a tree whose root is rank e mod P in epoch e, and the
                   activation P - 1 more. QUORUM(1) is SOLO, QUORUM(P) is FULL.
   CANDIDATES_ANY  (P + 1) / (m + 1).
   CANDIDATES_ALL  m (P + 1) / (m + 1). With m = 1 both are MAJORITY, at its
                   cost.

   keep            With KEEP_ALL wait returns epoch k's result at the k-th step.
                   Weights that get each result once stay the same on all ranks.
                   Staleness is at most `history`, and a rank that is always
                   slow sets the pace of all after `history` epochs. With
                   KEEP_LATEST, as in the paper, a late rank misses results, and
                   may get one twice (look at result.epoch): average the weights
                   of all ranks now and then.
   history         W, 1 to 2^20. The default, 4, rides out a delay of a few
                   steps, with young contributions and little memory. A larger W
                   rides out longer delays; each step of it costs `count`
                   elements, and an epoch of age. W = 0 would be BATON_FULL.
   max_staleness   S, 1 to 2^20; with KEEP_ALL 1 to W, since no contribution
                   gets older than that. An epoch that would exceed it for some
                   rank waits until that rank has started step epoch - S. So
                   every mode can keep every S.
   op              must have an identity.
   inner,          any all-reduce of coll.h, or your own; args->arg is
   inner_arg       inner_arg. It is called for each tensor of more than
                   BATON_PARTIAL_TREE_BYTES, and for what lies before,
                   between and behind those.
   memory          the same on all ranks. BATON_MEMORY_DEVICE needs a device
                   that has the reduction, and a group with payload (sim.h).
                   `tensors` is BATON_ERR_UNSUPPORTED there: contribute the
                   whole vector, or create a partial for each tensor.
   tensors, counts see below; the same on all ranks. In host memory only.
   count           with tensors: 0, or the sum of their counts.

   result.included is false if an epoch began between two contributions to one
   step: each is in a result, but not in the same one. (Tensors are always in
   one result together.)
   result.staleness is the age of this rank's oldest contribution that no
   earlier epoch took: the epoch less its step; 0 if there is none.
   result.data is unchanged until this rank's next wait. Work in streams that
   reads it must have ended by then.

   Create builds and commits the schedule; all ranks commit in the same order.
   Memory: (history + 5) * count elements, plus the inner builder's; on a device
   (history + 8) * count, and create blocks until the device has filled one of
   the vectors. Without payload (baton_group_has_payload) nothing. Errors:
   BATON_ERR_INVALID, and commit's; with BATON_MEMORY_DEVICE
   BATON_ERR_UNSUPPORTED (the engine has no device, the group no payload) and
   baton_device_alloc's. Destroy frees results and pending contributions, unless
   it returns an error: then an epoch may still use them.

   Contribute does not wait for the engine; concurrent contributors take turns.
   In device memory it blocks until the device has added the data, behind those
   of contribute_on; one thread at a time contributes and starts, and a call
   node can't. With KEEP_LATEST wait returns the latest epoch's result; with
   KEEP_ALL call it once a step. BATON_ERR_STATE before the first start. */

/* The inner all-reduce that NULL stands for. A vector of up to so many bytes
   goes up a tree to rank 0 and down a binomial tree, with the fewest messages;
   so does any vector whose reduction does not commute. The tree up is binomial,
   or flat: all ranks send to rank 0. Up to 64 ranks of one host take the flat
   one if the ranks that are expected to be active contribute up to so many
   bytes together; if that is more than one rank, only where ranks outnumber
   processors. Longer vectors go round a ring, with the fewest bytes. */
#define BATON_PARTIAL_TREE_BYTES 1048576

/* ---- without copies -----------------------------------------------------

   What is long may be lent, and results may be written where the program wants
   them, which may be the same memory:

       for (i = tensors; i-- > 0;) {
           backward(i, gradients[i]);
           baton_partial_contribute_tensor_lent(partial, i, gradients[i]);
       }
       baton_partial_start(partial);
       ...                                  // gradients stay as they are
       baton_partial_wait_into(partial, -1, gradients, &result);

   A rank that is in time then makes one copy, of the result, and none if it
   reads result.data instead. The epoch does not write to `gradients` itself, so
   that what it has taken can be pending again when it fails.

   What is lent is read, and must stay as it is, until wait has returned for the
   step that is started next.
   - After BATON_ERR_TIMEOUT or _INTERRUPTED the step goes on, and so does the
     loan.
   - Otherwise wait has copied what is still needed: what a rank has lent that
     was late, which a later epoch takes, whatever the bound of staleness; and
     after an error what the failed epoch had taken.
   - BATON_ERR_STATE of wait, and any error of start, change nothing: the loan
     goes on, until wait has returned for the next step that was started.
   - A recovery ends loans, also of a step that was not started, with a copy.
     Destroy ends them without one if it returns BATON_OK.
   - With BATON_ON_LOSS_CONTINUE a loan goes on while ranks are lost.
   Short tensors, and what is added to something that is pending already, are
   copied by the call. Any thread lends, as it contributes. */

/* As contribute, without a copy of a vector of more than
   BATON_PARTIAL_TREE_BYTES. In device memory it copies. */
BATON_CHECKED baton_status_t
baton_partial_contribute_lent(baton_partial_t *partial, const void *data);

/* Waits as baton_partial_wait does, and if that is BATON_OK copies the result
   to `targets`: an address for each tensor (see below), of which those that are
   NULL get nothing; or one address where there are no tensors. Memory that was
   lent to the step may be a target, since its loan has ended. Without payload
   nothing is copied. BATON_ERR_INVALID: targets is NULL. BATON_ERR_UNSUPPORTED:
   device memory. Both return at once. */
BATON_CHECKED baton_status_t
baton_partial_wait_into(baton_partial_t *partial, int timeout_ms,
                        void *const *targets, baton_partial_result_t *out);

/* ---- several tensors ----------------------------------------------------

   The gradients of a model, or buckets of them, as they are computed. With
   options.tensors they are contributed one by one, and a rank's step is in an
   epoch with all of them, or with none:

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

   (With a partial for each tensor, a step would be in the epochs of some
   tensors, and late for others.) No epoch takes anything of a step before it is
   started. A rank that is late for its epoch leaves all of its tensors to a
   later one. Between start and wait it may contribute to its next step already.

   The tensors are one vector, one after another without gaps, and have one
   type. Results, whole contributions, and what is pending have this form, and
   all that is said above holds for it. Before the start, what was contributed
   is pending for baton_partial_pending, too. No byte is sent before the start:
   a partial epoch takes what is there, and can't begin with a part of it.

   To cut tensors anew, when all ranks have waited for the same last step: each
   rank contributes to the new partial what is pending in the old one, and then
   destroys that. */

/* Contributes to one tensor of the step that is started next: counts[tensor]
   elements, which are added up if it is called more than once. A tensor without
   a contribution is the identity. Copies: `data` is the caller's again. Any
   thread; a contribution is in the step if the call has returned before start
   is called. Does not hold up an epoch, which takes what older steps have left.
   If start fails, the step is pending all the same. Memory: one vector more.
   BATON_ERR_INVALID: there is no such tensor. */
BATON_CHECKED baton_status_t baton_partial_contribute_tensor(
    baton_partial_t *partial, size_t tensor, const void *data);

/* The same, without a copy (see above) if the tensor has more than
   BATON_PARTIAL_TREE_BYTES and nothing else is contributed to it in the step.
 */
BATON_CHECKED baton_status_t baton_partial_contribute_tensor_lent(
    baton_partial_t *partial, size_t tensor, const void *data);

/* Elements before a tensor, 0 to options.tensors, in the vector. */
size_t baton_partial_offset(const baton_partial_t *partial, size_t tensor);

/* ---- the end of an epoch ------------------------------------------------ */

/* Sets a function that is called when an epoch has ended on this rank, as
   baton_schedule_on_end does. The function may contribute and start. Ignored
   with BATON_ON_LOSS_CONTINUE. */
void baton_partial_on_end(baton_partial_t *partial, baton_end_fn fn, void *arg);

/* ---- in the order of a stream ------------------------------------------

   For partials in device memory. None of these blocks the host or synchronises
   the device; one thread at a time calls them, as start. Up to 8 contributions,
   steps and results may be in flight (with max_staleness: contributions and
   steps together). One more is BATON_ERR_BUSY and does nothing: wait for a step
   then. BATON_ERR_UNSUPPORTED: the partial's memory is the host's.
   BATON_ERR_INVALID: a vector is not memory of this device. */

/* Contributes to the step that is started next, as baton_partial_contribute
   does, when the stream gets there: an epoch that begins before that does not
   take it. `data` is read in the order of the stream: work behind this call may
   overwrite it. An epoch that begins while the device is adding waits for that,
   and takes it. If the device fails here, the contribution is lost, and test
   and wait of the step say so. */
BATON_CHECKED baton_status_t baton_partial_contribute_on(
    baton_partial_t *partial, const void *data, baton_stream_t stream);

/* Starts a step, as baton_partial_start does, but the rank arrives when the
   stream gets there. If peers have run the epoch by then, the stream does not
   wait. */
BATON_CHECKED baton_status_t baton_partial_start_on(baton_partial_t *partial,
                                                    baton_stream_t stream);

/* Work that is put into the stream from now on runs when the epoch of the step
   that was started last has ended, and its result is in `target`: `count`
   elements of device memory; NULL: nothing is copied. With BATON_KEEP_LATEST it
   is the newest result that there is by then. If the epoch has failed, the
   target is as it was, and the stream goes on: test and wait tell. Wait also
   returns the rest of the result; with BATON_KEEP_ALL call either wait or
   wait_on, once a step. BATON_ERR_STATE: as wait. */
BATON_CHECKED baton_status_t baton_partial_wait_on(baton_partial_t *partial,
                                                   baton_stream_t stream,
                                                   void *target);

/* ---- to look at --------------------------------------------------------- */

/* The schedule behind it, for its last epoch's number and time, and for the
   messages and bytes that it has sent (baton_schedule_sent). The partial owns
   it: do not start, wait for or destroy it. NULL with BATON_ON_LOSS_CONTINUE,
   where it changes. */
const baton_schedule_t *baton_partial_schedule(const baton_partial_t *partial);

/* Whether a rank of the group that was given to create still takes part. It
   does until the others have agreed that it is lost. Any thread. */
bool baton_partial_lives(baton_partial_t *partial, int rank);

/* Copies what no epoch has taken yet to `data`: count elements, the identity if
   there is nothing. *any_out: whether there is something. A snapshot while
   epochs run. In device memory as baton_partial_contribute. */
BATON_CHECKED baton_status_t baton_partial_pending(baton_partial_t *partial,
                                                   void *data, bool *any_out);

/* The rank that BATON_MAJORITY elects for `epoch`: a function of its arguments
   alone. Each block of `size` epochs elects every rank once, in an order
   shuffled by the seed. So no contribution waits for 2 * size epochs or more.
 */
int baton_partial_elect(uint64_t seed, uint64_t epoch, int size);

#ifdef __cplusplus
}
#endif
#endif
