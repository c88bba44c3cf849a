/* Partial all-reduce in full: what an epoch takes, what a failure does, what
   the options of baton.h mean in detail, and steps in the order of a stream.
   (Li et al. 2020, "Taming Unbalanced Training Workloads in Deep Learning with
   Partial Collective Operations", sections 4 and 5: eager-SGD.)

       contribute --> [pending]                       [history] --> wait
                          |                               ^
       activation ---> take ---> any inner builder ---> publish

   contribute() adds into the rank's pending contribution. An epoch takes the
   whole of it, atomically, or nothing (a null contribution) while the
   application is in the middle of contributing. It waits for that only if what
   is pending would be too old for the next epoch (max_staleness, KEEP_ALL).
   A rank that starts the epoch gives its contribution at once, the others when
   it is activated (with CANDIDATES_ANY and 1 < m < P all do). Every
   contribution is taken by exactly one epoch, so the sum of all results plus
   what is pending equals the sum of all contributions. The result of an epoch
   is the same on every rank, bit for bit.

   The k-th start belongs to epoch k. If that epoch has been run without this
   rank, start and wait return at once, and the contribution goes out with a
   later epoch. All ranks start the same number of epochs. A rank that has ended
   the last one may destroy its partial, whatever the others have got to.

   When an epoch has failed the group is recovered (baton_group_recover), all
   ranks together. What the failed epoch had taken is pending again, unless the
   epoch was completed on another rank: then its result, which that rank has,
   includes it. So each contribution is in exactly one result, across failures,
   too; but a rank may have missed the last result before the failure, which
   training mends by sending the weights of one rank to all. Steps and epochs
   count from 1 again. In device memory the epoch after a recovery takes what
   was given back alone, and the one after that what was contributed since.

   With on_loss BATON_ON_LOSS_CONTINUE a lost rank (baton_group_shrink) is one
   that is never active. Those that live agree on who they are, and go on with
   the next epoch, with the same calls:
   - A thread of the library does that, so a rank that computes holds nobody up;
     with manual progress start, test and wait do. Start does not block
     meanwhile, and wait takes longer.
   - Elections are among the living, an epoch that is FULL waits for them, and q
     and m are at most their number. Results tell it (`living`), and
     baton_partial_lives who they are.
   - Each epoch has one result, the same on all that live: what one of them got
     before the loss is handed to those that missed it. Steps, epochs, staleness
     and its bounds go on. An epoch that only dead ranks had ended is run again.
   - What a living rank contributed is in one result, or pending. What a dead
     one did is lost, unless a result has it.
   - Ranks may be lost at any time, also while the others agree, until one is
     left. One that the others believe dead gets BATON_ERR_TRANSPORT for good.
     After other failures the partial is destroyed: it can't be recovered.
   - The partial has a group of its own, so the application may shrink `group`,
     and use it for others. All ranks destroy the partial, which waits until
     those that live have come to it, for BATON_DESTROY_MS at most.
   BATON_ERR_UNSUPPORTED: device memory, a simulated group, inner_arg (`inner`
   builds anew, in the library's thread). BATON_ERR_SYSTEM: no thread.

   In a cost-only simulation (sim.h) vectors have no memory: contribute and
   pending don't touch their `data`, which may be NULL, and a result has no data
   and no count of active ranks. Who takes part is right.

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

   How many ranks are active is expected where ranks arrive one after another,
   in random order, and each contributes before it starts.

   SOLO            1.
   MAJORITY        (P + 1) / 2 on average, 1 at least: those that arrive before
                   the one rank that is elected for the epoch. Nothing is
                   counted, and fewer than half may be in an epoch. The name is
                   the paper's.
   QUORUM          q, which are counted, and those that start meanwhile; along a
                   tree whose root is rank e mod P in epoch e, by less than 2 P
                   messages (3 P beyond 144 ranks), and then P - 1 more.
                   QUORUM(1) is SOLO, QUORUM(P) is FULL.
   CANDIDATES_ANY  (P + 1) / (m + 1) on average.
   CANDIDATES_ALL  m (P + 1) / (m + 1) on average. With m = 1 both are MAJORITY,
                   at its cost.

   keep            With KEEP_ALL wait returns epoch k's result at the k-th step,
                   so weights that get each result once stay the same on all
                   ranks. Staleness is at most `history`, and a rank that is
                   always slow sets the pace of all after `history` epochs. With
                   KEEP_LATEST, as in the paper, a late rank misses results, and
                   may get one again that it has seen (look at result.epoch):
                   the ranks bring their weights together now and then.
   history         W, 1 to 2^20. With 4, a delay of a few steps is ridden out,
                   contributions stay young, and memory small. A larger W rides
                   out longer ones, for `count` elements and one epoch of age
                   more each. There is no W = 0: that is BATON_FULL.
   max_staleness   S, 1 to 2^20; with KEEP_ALL 1 to W, since none gets older
                   than that. An epoch that would exceed it for some rank waits
                   until this rank has started step epoch - S, however late it
                   is; so every mode can keep every S.
   op              needs its identity.
   inner           any all-reduce of coll.h, or your own; args->arg is
   inner_arg. memory          the same on all ranks. With BATON_MEMORY_DEVICE
   the device has the reduction, and the group payload (sim.h).

   tensors, counts see below; the same on all ranks. Not in device memory.
   count           with tensors 0, or the sum of their counts.

   result.included is false where an epoch began between two contributions for
   one step: each is in a result, but not in the same one. (Not so of tensors.)
   result.staleness is the age of this rank's oldest contribution that no
   earlier epoch took, its epoch less its step, and 0 where there is none.
   result.data is unchanged until this rank's next wait, before which work in
   streams that reads it has been done.

   Create builds and commits the schedule, in the same order of commits on all
   ranks. Memory: (history + 5) * count elements, plus the inner builder's; on a
   device (history + 8) * count, and create blocks there until the device has
   filled one of them. Without payload (baton_group_has_payload) none of it.
   BATON_ERR_INVALID, and commit's; with BATON_MEMORY_DEVICE
   BATON_ERR_UNSUPPORTED (the engine has no device, the group no payload) and
   baton_device_alloc's. Destroy frees results and pending contributions; not
   with an error, as an epoch may still use them.

   Contribute does not block on the engine; concurrent contributors take turns.
   In device memory it blocks until the device has added the data, behind those
   of contribute_on, one thread at a time contributes and starts, and a call
   node can't. With KEEP_LATEST wait returns the latest epoch's result; with
   KEEP_ALL it is called once a step. BATON_ERR_STATE before the first start. */

/* The inner all-reduce that NULL stands for. A vector of up to so many bytes,
   or any where the reduction does not commute, goes up a tree to rank 0 and
   down a binomial one, with the fewest messages. The tree up is binomial, or
   flat: all ranks send to rank 0. That is taken by up to 64 ranks on one host
   if those that are expected to be active have up to so many bytes together; if
   that is more than one rank, only where there are more ranks than processors.
   Longer vectors go round a ring, with the fewest bytes. */
#define BATON_PARTIAL_TREE_BYTES ((size_t)1 << 20)

/* Contributes without a copy where that can be: of more than
   BATON_PARTIAL_TREE_BYTES, when nothing older is pending; else as contribute.
   `data` is read until wait has returned for the step that is started next
   (not with BATON_ERR_TIMEOUT), or a recovery: it stays as it is until then. If
   no epoch has taken it by then it is copied, for a later one. */
BATON_CHECKED baton_status_t
baton_partial_contribute_lent(baton_partial_t *partial, const void *data);

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

   (With a partial for each tensor, a step would be in the epochs of some, and
   late for those of others.) Until it is started, nothing of a step is taken.
   A rank that is late for its epoch leaves all of its tensors to a later one.
   Between start and wait it may contribute to its next step already.

   There is one epoch, of one vector: the tensors one after another, without
   gaps. Results, contributions of all of it, and what is pending have this
   form, and all that is said above holds for it. What was contributed before
   the start is pending for baton_partial_pending, too. No byte is sent before
   the start: a partial epoch takes what there is, so it can't begin with a part
   of it. The tensors have one type.

   To cut them anew: when all ranks have waited for the same last step, a rank
   contributes to the new partial what is pending in the old one, which is
   destroyed then. */

/* Contributes to one tensor of the step that is started next: counts[tensor]
   elements, which are added up if it is done more than once. A tensor without a
   contribution has the neutral element. Copies: `data` is the caller's again.
   Any thread; it is in the step if it has returned before start is called. Does
   not hold up an epoch, which takes what older steps have left. A start that
   fails has made the step pending all the same. Memory: one vector more.
   BATON_ERR_INVALID: there is no such tensor. */
BATON_CHECKED baton_status_t baton_partial_contribute_tensor(
    baton_partial_t *partial, size_t tensor, const void *data);

/* Elements before a tensor, 0 to options.tensors, in the vector. */
size_t baton_partial_offset(const baton_partial_t *partial, size_t tensor);

/* ---- the end of an epoch ------------------------------------------------ */

/* Sets a function that is called when an epoch has ended on this rank: as
   baton_schedule_on_end. It may contribute and start. Without effect with
   BATON_ON_LOSS_CONTINUE. */
void baton_partial_on_end(baton_partial_t *partial, baton_end_fn fn, void *arg);

/* ---- in the order of a stream ------------------------------------------

   For partials in device memory. None of these blocks the host, or synchronises
   the device; they are called by one thread at a time, as start is. Up to 8
   contributions, steps and results may be in flight (of contributions and
   steps together, with max_staleness): one more is BATON_ERR_BUSY, and nothing
   has happened; wait for a step then. BATON_ERR_UNSUPPORTED: the partial's
   memory is the host's. BATON_ERR_INVALID: a vector is not memory of this
   device. */

/* Contributes to the step that is started next, as baton_partial_contribute
   does, when the stream gets there: an epoch that begins before does without.
   `data` is read in the order of the stream, and what is put there later may
   overwrite it. An epoch that begins while the device is adding waits for that,
   and takes it. If the device fails here the contribution is lost, and test and
   wait of the step say so. */
BATON_CHECKED baton_status_t baton_partial_contribute_on(
    baton_partial_t *partial, const void *data, baton_stream_t stream);

/* Starts a step, as baton_partial_start does, but the rank arrives when the
   stream gets there. If peers have run the epoch until then nothing is held up
   by it. */
BATON_CHECKED baton_status_t baton_partial_start_on(baton_partial_t *partial,
                                                    baton_stream_t stream);

/* What is put into the stream from now on is done when the epoch of the step
   that was started last has ended, and its result has been copied to `target`:
   with BATON_KEEP_LATEST the newest one that there is by then. `count` elements
   of device memory; NULL: nothing is copied. If the epoch has
   failed the target is as it was, and the stream goes on: test tells; so does
   wait, which also has the rest of what is known of the result, but with
   BATON_KEEP_ALL either of wait and wait_on is called once a step.
   BATON_ERR_STATE: as wait. */
BATON_CHECKED baton_status_t baton_partial_wait_on(baton_partial_t *partial,
                                                   baton_stream_t stream,
                                                   void *target);

/* ---- to look at --------------------------------------------------------- */

/* The schedule behind it, to look at: its last epoch's number and time, and the
   messages and bytes that it has sent (baton_schedule_sent). Owned by the
   partial; not to be started, waited for or destroyed. NULL with
   BATON_ON_LOSS_CONTINUE, where it changes. */
const baton_schedule_t *baton_partial_schedule(const baton_partial_t *partial);

/* Whether a rank of the group that create was given takes part: it does until
   the others have agreed that it is lost. Any thread. */
bool baton_partial_lives(baton_partial_t *partial, int rank);

/* Copies what no epoch has taken yet to `data` (count elements; the identity
   when there is nothing) and returns whether there is anything in *any_out.
   A snapshot while epochs run. In device memory as baton_partial_contribute. */
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
