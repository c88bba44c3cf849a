/* Sparse all-reduce in full: ranks send the largest entries of their gradients,
   and keep the rest in a residual for a later step. This header has the options
   of baton.h in detail, steps in the order of a stream, residuals, checkpoints,
   costs and statistics.

       gradient --+--> accumulate --> select, exchange, sum --> result
                  |        ^                      |
                  |        +------ residual <-----+

   The collective owns the residual, since only the collective knows which
   entries were left out on the way. The result of a step is the sum of the
   entries that the ranks selected, the same on every rank, bit for bit. Sums
   that are exactly 0 are left out of the result: with SPARDL, GTOPK and OKTOPK
   the residuals keep the entries that cancel, with the other algorithms they
   are gone. For all algorithms the sum over ranks of gradient and old residual
   equals the result plus the sum of the new residuals, up to rounding.
   Quantised values are the exception: their difference from the mean is
   dropped.

   NaNs and infinities are the largest of all, so they are sent first. But a
   step sends only k of them: if no entry of one gradient is finite, such
   entries come back out of the residual for n/k steps. So don't start a step
   with a gradient that is not finite: if one rank has such a gradient, all
   ranks skip the step. If a result has such values (not_finite of
   baton_sparse_stats_t), every rank clears its residual and velocity by
   baton_sparse_set_residual, or loads an earlier state, and the weights go back
   to a checkpoint.

   Options must be the same on all ranks, which baton_sparse_create checks.
   Later values that must be the same, such as the k of baton_sparse_set_k, are
   not checked.

   When a step has failed, the residual is as before the step, and the step's
   gradient must not change; all ranks recover the group (baton_group_recover).
   The recovery completes a step on all ranks if any rank had completed it. So
   after a recovery wait again for the last step that was not known to have
   ended. On all ranks that lack the result of this step, wait either returns
   that result, or returns BATON_ERR_STATE: then start the step again. (With
   BATON_MEMORY_DEVICE only ranks that had completed the step have the result.)
   In a recovery an algorithm forgets the values that it learned from earlier
   steps: the number h of entries that BSAG sends (see `exchange` below), and
   the thresholds of REDSYNC and OKTOPK.

   With options.partial a step does not wait for every rank (partial.h has the
   modes, and names the paper):

       start --> [pending] ---+          all of it, or nothing
                              v
       activation ---------> take --> select, exchange, sum --> result, residual

   The k-th start of a rank belongs to epoch k. Start adds the gradient,
   clipped, to the rank's pending gradient; when start returns, the gradient is
   the caller's again. An epoch begins when options.mode says, and on each rank
   when its activation arrives there. If a gradient is pending then, the epoch
   takes both the pending gradient and the residual. If no gradient is pending,
   the epoch takes nothing: the rank passes on the entries of other ranks, and
   has no entries of its own.

   So if a rank starts step k late, the next epoch that begins there takes the
   rank's gradient. The start and wait of step k return at once; wait returns
   the result of epoch k, and `included` is false. Every rank gets the result of
   every epoch, in order: in step k wait returns the result of epoch k. A rank
   that is more than `history` epochs late holds up the others.

   Momentum follows a rank's own starts, in their order, whichever epoch takes
   their gradients: each start adds the velocity u (or u + g, see `momentum`
   below) to the pending gradient. When wait has returned a result, u becomes 0
   at the result's entries, whether or not this rank was `included`. In the
   first `warmup` epochs all entries are sent, and u is not cleared.

   A rank that contributed nothing may have to drop entries that it passes on
   (SPARDL, GTOPK): they go to its residual. So whenever no epoch runs, the sum
   of all started gradients (with momentum: of all u) equals the sum of all
   results, residuals and pending gradients, up to rounding. That holds across
   failures, too. A recovery completes an epoch on all ranks if any rank had
   completed it, and hands its result to the ranks that failed in it. Gradients
   that other epochs had taken are pending again, so don't start them again.
   After a recovery, before the next start, wait returns the results that the
   rank has missed, one by one, so that all ranks have had the same results:

       while (baton_sparse_wait(sparse, -1, &result) == BATON_OK)
           update(&result);        // then BATON_ERR_STATE: that was the last

   With options.on_loss BATON_ON_LOSS_CONTINUE a partial sparse all-reduce goes
   on by itself when ranks are lost, as a partial all-reduce does (partial.h has
   the details): the survivors agree on the lost ranks, and go on with the next
   epoch. The program makes the same calls; no call fails, and no group is
   shrunk:
   - Each epoch has one result, the same on all survivors, and wait returns the
     results in order. A result that one survivor got before the loss is handed
     to the others. An epoch that only dead ranks had completed is run again.
   - Each entry of a survivor's gradients is in one result, in a residual, or
     pending, unless a lost rank's residual held it: with SPARDL and GTOPK that
     residual includes dropped entries of other ranks. After a loss,
     baton_sparse_residual and _velocity return BATON_ERR_BUSY for a moment, as
     while an epoch runs; with manual progress, until test or wait is called.
   - `average` and `clip` use the number of survivors, mode_ranks is at most
     that number, and the algorithm stays.
   - The loss of a rank during create is no error: the others begin without it.
     After create the application may shrink the group that was given to create,
     use it otherwise, and destroy it.
   - All errors of steps, such as BATON_ERR_TRANSPORT and BATON_ERR_NO_MEMORY,
     are for good: destroy the sparse all-reduce. The others then get
     BATON_ERR_STATE, whose message names the rank that has destroyed it. All
     ranks destroy theirs together, as with a partial.

   In a cost-only simulation (sim.h) there are no vectors: gradients may be
   NULL, results have no entries, and messages have their largest size.

   With options.memory BATON_MEMORY_DEVICE gradients are in the memory of the
   engine's device (device.h), and a step may be in the order of a stream:

       backward<<<grid, block, 0, stream>>>(gradient);
       baton_sparse_start_on(sparse, stream, gradient);
       other_work<<<grid, block, 0, stream>>>();    // none of them blocks
       baton_sparse_wait_on(sparse, stream, sum);
       update<<<grid, block, 0, stream>>>(weights, sum);

   Residual and velocity are in the device's memory, too, and the device
   accumulates and selects. The selected entries are copied to the host; the
   entries of the result, and changes of the residual, are copied back. Results
   have the same bits as on the host, except for the signs of zeros in dense
   steps. The device must have selection (device.h; CUDA's has it), and the
   algorithm must be SPARDL, TOPKA, REDSYNC or DENSE.

   Threads: one at a time uses a sparse all-reduce.

   SparDL: Zhao et al. 2024, "SparDL: Distributed Deep Learning Training with
   Efficient Sparse Communication". RedSync: Fang et al. 2019, "Accelerating
   Distributed Deep Learning Training with Gradient Compression". */
#ifndef BATON_SPARSE_H
#define BATON_SPARSE_H

#include <baton/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Algorithms: enumerator, name. A word is an index or a value; words are
   counted for one of P ranks and one step, sent plus received.

   SPARDL   A Spar-Reduce-Scatter in teams of m = P/d ranks, an exchange between
            the d teams, and an all-gather in each team. 2 ceil(log2 m) +
            ceil(log2 d) rounds; if d is 1, 4k(P-1)/P words.
   TOPKA    An all-gather of each rank's k largest entries. ceil(log2 P) rounds,
            2(P-1)k words.
   TOPKDSA  The owner of each of P regions sums it, and all regions are
            gathered. A region is sent as a dense vector if that is shorter.
            P - 1 + 2 ceil(log2 P) rounds.
   GTOPK    A binomial tree that keeps k entries at every node, and then a
            broadcast. 2 ceil(log2 P) rounds, at most 4k ceil(log2 P) words.
   OKTOPK   Like TOPKDSA, but it reuses thresholds in later steps, and adapts
            the regions to the data. P - 1 + 2 ceil(log2 P) rounds. A rank
            receives into P - 1 buffers of 2k entries.
   REDSYNC  Like TOPKA, with RedSync's selections and messages.
   DENSE    An all-reduce of the whole gradient, without a copy. If ranks share
            hosts, it uses the algorithm that baton_add_allreduce chooses. The
            residual stays zero. */
#define BATON_SPARSE_ALGORITHM_LIST(X)                                         \
    X(SPARDL, "spardl")                                                        \
    X(TOPKA, "topka")                                                          \
    X(TOPKDSA, "topkdsa")                                                      \
    X(GTOPK, "gtopk")                                                          \
    X(OKTOPK, "oktopk")                                                        \
    X(REDSYNC, "redsync")                                                      \
    X(DENSE, "dense")

/* Returns "auto", "spardl" and so on, or "?" for a value that is no
   algorithm. */
const char *baton_sparse_algorithm_name(baton_sparse_algorithm_t algorithm);

/* A value of options.teams that means the cheapest number of teams. */
enum { BATON_SPARSE_TEAMS_AUTO = -1 };

/* ---- options -------------------------------------------------------------

   name            The name appears in messages, and pairs the ranks. It must be
                   the same on all ranks, even if other options may differ. NULL
                   means "sparse".
   algorithm       AUTO means the algorithm that is the cheapest according to
                   baton_sparse_cost, which may be another one than SPARDL.
   count           The number of elements, n: 1 to UINT32_MAX.
   k, density      Each rank selects k entries, 1 to n. If k is 0, it selects
                   this share of the elements, above 0 and at most 1.
   max_k           The largest k that baton_sparse_set_k accepts; 0 means k.
   teams           The number of teams of SPARDL, d, which divides P. 0 means 1,
                   whose selection is the most accurate. BATON_SPARSE_TEAMS_AUTO
                   means the cheapest number. A number above 1 requires SPARDL
                   or AUTO.
   exchange        How the teams of SPARDL exchange their sums. RSAG is
                   recursive doubling; d must be a power of two. BSAG is a Bruck
                   all-gather of each team's h largest entries, for any d. AUTO
                   means RSAG if d is a power of two, else BSAG. RSAG and BSAG
                   require SPARDL or AUTO as the algorithm.
   momentum        The factor m of momentum. The velocity is u = m u + g, and u
                   is accumulated instead of the gradient g. u becomes 0 where
                   the result has an entry (SPARDL, GTOPK), where this rank has
                   sent an entry (TOPKA, TOPKDSA, REDSYNC), or where both are
                   true (OKTOPK). With nesterov, u = m (u + g), and u + g is
                   accumulated.
   short_velocity  The velocity u is kept as bf16, rounded to nearest even. This
                   takes half the memory, and a step reads and writes 4 bytes
                   less per element. In later steps the part of u that rounding
                   removes would have added m / (1 - m) times as much. This is
                   accumulated at once, so in the end nothing of a gradient is
                   lost. baton_sparse_velocity and states still have n elements
                   of f32; a velocity that is set or imported is rounded. This
                   option requires momentum, f32, and gradients in host memory.
                   Ranks may have different values.
   clip            The bound c: a gradient whose norm is above c / sqrt(P) is
                   scaled to that norm before it is accumulated. 0 means that no
                   gradient is scaled.
   redsync         How REDSYNC selects. EXACT selects the k largest, by the
                   fastest method. TRIMMED selects the same, by the paper's
                   trimming. SEARCH selects k to 2k entries, above a threshold
                   that a binary search finds. SAMPLED is like SEARCH, but
                   searches only in every fifth step. All but EXACT require
                   REDSYNC.
   quantise        Even steps send the largest positive entries, and odd steps
                   the smallest negative ones. Both send the mean of the entries
                   instead of their values. This option requires REDSYNC, and a
                   selection other than SAMPLED.
   link            The costs of messages by which AUTO chooses. Zeros mean the
                   costs of this machine (costs.h); then AUTO also accounts for
                   the work of the processors (see baton_sparse_cost). Ranks may
                   have different values if algorithm and teams are given.
   partial         Steps do not wait for every rank; see above. `mode` to `seed`
                   are as in baton_partial_options_t, except that a `history` of
                   0 means 4, and that max_staleness is at most `history`; 0
                   means `history`. This option requires SPARDL (which AUTO
                   chooses), TOPKA (which always sends k entries), TOPKDSA or
                   GTOPK, and gradients in host memory. It takes two more
                   vectors of n elements and history + 2 results; with warmup,
                   messages and results have up to n entries.
   on_loss         What happens when a rank is lost; see above. This option
                   requires partial, and teams of 0 or 1. It takes memory for
                   one more result. BATON_ERR_UNSUPPORTED: the group is
                   simulated. BATON_ERR_SYSTEM: no thread could be created; the
                   other ranks then wait until their timeout.
   in_place        The caller adds its gradients to the residual itself; see
                   baton_sparse_accumulator. This option requires SPARDL (which
                   AUTO chooses) or DENSE, and gradients in host memory, and
                   excludes partial, momentum and clip. Ranks may have different
                   values, except with AUTO. It takes n elements, and 2n more
                   from the first dense step on.
   memory          The memory that gradients are in. Ranks may have different
                   values, except with AUTO. With BATON_MEMORY_DEVICE, the
                   collective takes 2n elements of the device's memory, or 4n
                   with momentum, and n elements and the results in pinned host
                   memory. */

/* ---- life -------------------------------------------------------------- */

/* baton_sparse_create is collective: all ranks create with the same options, in
   the same order. Create blocks until all ranks call it, for at most timeout_ms
   (negative: for ever). If options are wrong or differ, create fails on all
   ranks; the message names the option and both values. If one rank's options
   are wrong, the others get its error, or BATON_ERR_MISMATCH if options differ.
   If a rank's options can't be read (they are NULL, or have a size that no
   version has), the rank takes part under the name in them if the size is 0,
   and otherwise under the name "sparse". If group or out is NULL, only this
   rank gets an error.

   Memory: the residual and a work vector take 2n elements, momentum takes 2n
   more, or n with short_velocity, and messages and results take memory for
   their entries. The first dense step whose gradient must be copied (with
   momentum, clipping, or a residual) takes n more; its start may return
   BATON_ERR_NO_MEMORY. SPARDL takes two more lists for each block from which it
   selects after a receive (about half of the blocks). Each list has memory for
   all candidates of the selection (baton_select_scratch_bytes) and for the
   received entries.

   BATON_ERR_INVALID, BATON_ERR_MISMATCH, BATON_ERR_TIMEOUT,
   BATON_ERR_NO_MEMORY, and commit's errors. BATON_ERR_UNSUPPORTED:
   options.memory is BATON_MEMORY_DEVICE, but no device can select, the group's
   buffers have no memory (baton_group_has_payload), or options.partial or the
   algorithm needs host memory.

   Create in two parts, for one thread that runs several ranks (sim.h,
   inproc.h): prepare begins the comparison of options and waits for no other
   rank; connect waits until the comparison has ended, and returns the status
   that create would. Between the two only connect and destroy are allowed;
   other calls return BATON_ERR_STATE. */
BATON_CHECKED baton_status_t baton_sparse_prepare(
    baton_group_t *group, const baton_sparse_options_t *options,
    baton_sparse_t **out);
BATON_CHECKED baton_status_t baton_sparse_connect(baton_sparse_t *sparse,
                                                  int timeout_ms);

/* ---- steps ------------------------------------------------------------- */

/* Start and wait are in baton.h. The gradient, n elements, must not change
   until the step has ended; with options.partial, until start returns. Start
   returns BATON_ERR_BUSY while a step runs, and is otherwise like
   baton_schedule_start. Test is like baton_schedule_test, and returns
   BATON_ERR_STATE before connect. Wait is like baton_schedule_wait; see above
   for waits after a recovery. If the step has failed, the residual is as before
   the step. Wait returns BATON_ERR_STATE if no step was started or connect has
   not returned, and once BATON_ERR_SYSTEM if the device failed while it copied
   a result. The library owns the result, until the next start. With
   options.partial a late gradient is not `included`: a later epoch takes it. */
BATON_CHECKED baton_status_t baton_sparse_test(baton_sparse_t *sparse,
                                               bool *done_out);

/* Contributes a gradient in parts, as the backward pass computes them:

       for (i = buckets; i-- > 0;) {
           backward(i, gradients[i]);
           baton_sparse_contribute(sparse, first[i], count[i], gradients[i]);
       }
       baton_sparse_start(sparse, NULL);

   Contribute reads a part, `count` elements from `first` on, and adds it to the
   gradient of the next step; parts may come in any order. The exchange begins
   with the start, whose gradient is NULL here; results and residuals have the
   same bits as with a whole gradient. With options.partial no epoch takes a
   part before the start. If the gradient is clipped, or the step is dense or
   partial, contribute copies the parts, and the step accumulates them.

   Keep all parts until the step has ended: if the step fails, contribute them
   again after the recovery. With options.partial a started step keeps its
   gradient for the first epoch that succeeds, so don't contribute it again.
   Parts of a step that was not started are forgotten when the group is
   recovered (not with on_loss), and by baton_sparse_discard (say, after an
   aborted backward pass), shrink, flush, set_residual, import and load;
   contribute all of them again. Before the start, residual and export do not
   include the parts.

   Errors of contribute: BATON_ERR_INVALID: the gradient has no such elements,
   or some were contributed before. BATON_ERR_BUSY: a step runs.
   BATON_ERR_FAILED: the last step has failed, and the group was not recovered
   (with options.partial the start returns this). BATON_ERR_UNSUPPORTED: with
   in_place, or gradients on a device. BATON_ERR_NO_MEMORY: the first part of a
   dense or partial step takes memory for n elements. Errors of start:
   BATON_ERR_STATE: an element is missing, which the message names; the parts
   stay. BATON_ERR_INVALID: a gradient is given, too. */
BATON_CHECKED baton_status_t baton_sparse_contribute(baton_sparse_t *sparse,
                                                     size_t first, size_t count,
                                                     const void *part);
BATON_CHECKED baton_status_t baton_sparse_discard(baton_sparse_t *sparse);

/* With options.in_place: the residual, n elements, zeros at first. The caller
   adds its gradient to the residual, for example by letting its backward pass
   accumulate there, and starts the step with a gradient of NULL. The pointer
   stays the same until destroy. From the start until wait or test has returned
   BATON_OK the elements must not change; after that the sent entries are
   removed, and the next gradient may be added. After a failed step the elements
   are as at its start: recover the group, and start again without adding the
   gradient once more, unless a wait after the recovery has returned the result.
   NULL: without options.in_place (BATON_ERR_STATE), or in a cost-only
   simulation. */
void *baton_sparse_accumulator(const baton_sparse_t *sparse);

/* Starts a dense step without a gradient. The step's result is the sum of the
   residuals, which are zero afterwards. All ranks call it.
   BATON_ERR_UNSUPPORTED: with options.partial; sum the copies of
   baton_sparse_residual instead. */
BATON_CHECKED baton_status_t baton_sparse_flush(baton_sparse_t *sparse);

/* Sets a function that is called when a step (with options.partial, an epoch)
   has ended on this rank, like baton_schedule_on_end; `epoch` counts the calls
   from 1. A wait after such a call returns the result at once. Set the function
   between steps. Ignored with options.on_loss. */
void baton_sparse_on_end(baton_sparse_t *sparse, baton_end_fn fn, void *arg);

/* Writes the last step's result as a dense vector of n elements.
   BATON_ERR_STATE: while a step runs, and before the first. */
BATON_CHECKED baton_status_t baton_sparse_dense(baton_sparse_t *sparse,
                                                void *vector);

/* Writes `count` elements of the dense result, from `first` on, e.g. a bucket.
   Finds the entries of this range by a binary search, and reads no others, so
   that all buckets of a result together cost no more than the whole.
   BATON_ERR_INVALID: the gradient has no such elements. */
BATON_CHECKED baton_status_t baton_sparse_dense_range(baton_sparse_t *sparse,
                                                      size_t first,
                                                      size_t count,
                                                      void *elements);

/* Moves the sparse all-reduce, with all its state, into the group of the
   survivors after baton_group_shrink. Collective over `survivors`, which was
   made by baton_group_shrink of the sparse all-reduce's group, or by further
   shrinks of that. A step that any survivor has completed is completed on all
   of them, as after a recovery (see above): wait again for the step that was
   not known to have ended, and start the step again if wait returns
   BATON_ERR_STATE. So all survivors get the same results, and their gradients
   are in those results and in the survivors' residuals (and pending gradients),
   except for entries in a lost rank's residual. With SPARDL and GTOPK that
   residual includes dropped entries of other ranks.

   Afterwards the old group may be destroyed. `average` and `clip` use the
   number of survivors; an algorithm that AUTO has chosen stays; `teams` becomes
   1 if it does not divide that number, and mode_ranks is at most that number.
   Until this call has returned BATON_OK, all calls but destroy return
   BATON_ERR_STATE. BATON_ERR_TRANSPORT: another rank was lost: all ranks shrink
   `survivors`, and make this call with the new group. BATON_ERR_NO_MEMORY: this
   rank can't go on in `survivors`, and the others wait for it until their
   timeout; the remedy is the same. BATON_ERR_TIMEOUT: call it again.
   BATON_ERR_INVALID: survivors is NULL, or was destroyed. BATON_ERR_STATE:
   connect has not returned. BATON_ERR_UNSUPPORTED: gradients are on a device,
   the simulation is cost-only, or options.on_loss is set. */
BATON_CHECKED baton_status_t baton_sparse_shrink(baton_sparse_t *sparse,
                                                 baton_group_t *survivors,
                                                 int timeout_ms);

/* True as long as `rank`, of the group that was given to create, takes part:
   with options.on_loss until the other ranks have agreed that it is lost,
   without options.on_loss always. Any thread. */
bool baton_sparse_lives(baton_sparse_t *sparse, int rank);

/* ---- in the order of a stream ------------------------------------------

   BATON_ERR_UNSUPPORTED: options.memory is BATON_MEMORY_HOST. Neither call
   blocks the host or synchronises the device. */

/* Starts a step, as baton_sparse_start does; the step begins when the work now
   in the stream has completed, the step before has ended, and the results of
   earlier calls of wait_on have been copied. The gradient must not change until
   the step has ended: only work after baton_sparse_wait_on may overwrite it. Up
   to 8 steps may be in flight; one more is BATON_ERR_BUSY. When a step fails,
   all later ones in flight fail, too. BATON_ERR_INVALID: the gradient is not
   memory of this device. After these steps baton_sparse_start returns
   BATON_ERR_BUSY until a wait or test has returned for the last one. */
BATON_CHECKED baton_status_t baton_sparse_start_on(baton_sparse_t *sparse,
                                                   baton_stream_t stream,
                                                   const void *gradient);

/* Work put into the stream from now on runs when the last started step has
   ended, and its result is in `vector`: n elements of memory of this device, or
   NULL for no copy. The device writes the elements from the entries, or copies
   them from the host after a dense step. If the step has failed, `vector` is
   unchanged, and the stream goes on; test and wait return the error. If the
   device fails and only the copy is lost, the next wait returns that error; the
   residual is as after the step. A step counts as failed if no test or wait has
   returned its outcome before a recovery. BATON_ERR_INVALID: `vector` is not
   memory of this device. BATON_ERR_BUSY: 8 results are being copied.
   BATON_ERR_STATE: no step was started. */
BATON_CHECKED baton_status_t baton_sparse_wait_on(baton_sparse_t *sparse,
                                                  baton_stream_t stream,
                                                  void *vector);

/* ---- between steps ----------------------------------------------------- */

/* All functions of this section return BATON_ERR_BUSY while a step runs. With
   options.partial they do so, too, while an epoch runs that a peer has begun,
   and after a failed epoch until the group is recovered, baton_sparse_shrink
   has returned BATON_OK, or, with on_loss, the survivors have agreed. set_k and
   set_density return BATON_ERR_UNSUPPORTED with options.partial. If the
   residual is on a device, residual, export, import, save and load block until
   it has been copied; BATON_ERR_SYSTEM: the device has failed, and the state is
   unchanged. */

/* Sets k from the next step on, the same on all ranks: 1 to max_k. A density
   gives max(1, n * density), rounded down. BATON_ERR_INVALID: out of range. */
BATON_CHECKED baton_status_t baton_sparse_set_k(baton_sparse_t *sparse,
                                                size_t k);
BATON_CHECKED baton_status_t baton_sparse_set_density(baton_sparse_t *sparse,
                                                      double density);

/* Copies the sum of this rank's residual and pending gradient, n elements. */
BATON_CHECKED baton_status_t baton_sparse_residual(baton_sparse_t *sparse,
                                                   void *vector);

/* Copies this rank's velocity, n elements. BATON_ERR_STATE: momentum is 0. */
BATON_CHECKED baton_status_t baton_sparse_velocity(baton_sparse_t *sparse,
                                                   void *vector);

/* Replaces this rank's residual, and with momentum its velocity (else NULL), n
   elements each; the pending gradient stays. To change tensors, k or the
   algorithm without losses, hand the residuals of the old sparse all-reduces to
   the new ones. Without options.partial the last result is invalid
   afterwards. */
BATON_CHECKED baton_status_t baton_sparse_set_residual(baton_sparse_t *sparse,
                                                       const void *residual,
                                                       const void *velocity);

/* For checkpoints of the program: export copies this rank's state to the
   caller's memory, and import takes it from there. A state consists of
   residual, velocity, k, the number of steps, and values that the algorithm has
   learned, such as thresholds. A run that goes on from a state has the same
   results, bit for bit, as an uninterrupted one, whatever the importing sparse
   all-reduce has done before.

   baton_sparse_state_size returns the bytes of every export; 0 before connect,
   and in a group whose buffers have no memory. export writes that many bytes;
   `state` needs no alignment. import copies them, so the caller may free
   `state`. A state contains its version, rank and options, and a checksum. If
   one of them does not fit, import returns BATON_ERR_INVALID with a message
   that names it, and changes nothing. Options must be those of the state,
   except k (at most max_k), link, memory and short_velocity.

   With options.partial a state also contains the pending gradient, and import
   continues its epoch numbers, so that the same ranks are elected as without an
   interruption. Here import does not change k: it stays that of the options.
   The options from `mode` to `seed`, and on_loss, may differ from those of the
   state; import does not change them either. All ranks export after the same
   step, and no rank starts the next step before all have exported: call
   baton_barrier_now after export, and after import. Both return BATON_ERR_BUSY
   if an epoch has begun, or ended, whose step this rank has not started. With
   on_loss, import also returns BATON_ERR_BUSY after a loss, until the survivors
   have agreed; with manual progress, baton_sparse_test makes them agree. A
   state of P ranks can be imported by P ranks only: if a rank is lost before
   all have imported, destroy the sparse all-reduce, and begin again with P
   ranks. */
size_t baton_sparse_state_size(const baton_sparse_t *sparse);
BATON_CHECKED baton_status_t baton_sparse_state_export(baton_sparse_t *sparse,
                                                       void *state,
                                                       size_t bytes);
BATON_CHECKED baton_status_t baton_sparse_state_import(baton_sparse_t *sparse,
                                                       const void *state,
                                                       size_t bytes);

/* Save exports the state to a file, and load imports it. Save writes path.new,
   synchronises it with the disk, and renames it: after a crash either the old
   file or the new one is there. Both allocate memory for a copy.
   BATON_ERR_SYSTEM: the file or its folder can't be read, written or
   synchronised. BATON_ERR_INVALID: path or path.new exists and is no regular
   file, but a link, a device or a folder; save neither replaces nor follows
   it. */
BATON_CHECKED baton_status_t baton_sparse_save(baton_sparse_t *sparse,
                                               const char *path);
BATON_CHECKED baton_status_t baton_sparse_load(baton_sparse_t *sparse,
                                               const char *path);

/* ---- cost -------------------------------------------------------------- */

/* The cost of a step's messages in the model of tuning.h, without selections
   and sums. Every selection is assumed to have its largest size. */
typedef struct baton_sparse_cost {
    baton_sparse_algorithm_t algorithm; /* the chosen algorithm, never AUTO */
    int teams;                          /* number of teams, for SPARDL */
    baton_exchange_t exchange;          /* RSAG or BSAG, for SPARDL */
    double us;                          /* the expected time of a step */
    /* number of rounds of messages, one after the other */
    double rounds;
    /* numbers of messages and of bytes that the busiest rank sends */
    double messages, bytes;
} baton_sparse_cost_t;

/* Stores the closed form of the cost for these options on `ranks` ranks: for
   `algorithm` and `teams`, or for those that AUTO chooses. Where the cost
   depends on the data, it is that of the best case: for TOPKDSA and OKTOPK, all
   ranks select the same indices; for OKTOPK, the step does not move its
   regions; for BSAG, h has its first value, which may grow d-fold. More teams
   select worse, since a team sends the largest entries of its own sum; the cost
   does not include that.

   If options.link is set, AUTO chooses the algorithm with the least cost; this
   is never TOPKDSA or OKTOPK, even in their best case. Otherwise AUTO adds
   measured costs of selecting, merging and copying on one host, multiplied by
   the number of ranks per processor, and assumes the longest sums. A sparse
   all-reduce knows the hosts and processors of its group; this function assumes
   one host, and a processor for each rank. BATON_ERR_INVALID: as for create.
   Errors of baton_costs_get. */
BATON_CHECKED baton_status_t baton_sparse_cost(
    const baton_sparse_options_t *options, int ranks, baton_sparse_cost_t *out);

/* ---- statistics -------------------------------------------------------- */

typedef struct baton_sparse_stats {
    uint64_t steps; /* number of completed steps */
    /* The fields from here to not_finite describe the last completed step on
       this rank. Messages, bytes and rounds of a dense step are not counted. */
    /* the step's algorithm; DENSE in warm-up */
    baton_sparse_algorithm_t algorithm;
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;
    /* number of rounds of messages, one after the other */
    uint32_t rounds;
    uint32_t block_selections; /* number of selections from dense vectors */
    double select_us; /* processor time of accumulation, selection, merging and
                         packing; excludes messages and a device's work */

    uint64_t nnz;        /* number of entries of the result */
    uint64_t not_finite; /* number of infinities and NaNs among these entries */
    /* The fields from here on are values for the next step. */
    size_t k;
    uint64_t h;       /* BSAG: number of entries of a block that a team sends */
    double threshold; /* REDSYNC, OKTOPK: this rank's last threshold */
    int teams;        /* number of teams, d */
} baton_sparse_stats_t;

/* Gets the statistics. Reads all values of the last result, n after a dense
   step, to count those that are not finite. */
BATON_CHECKED baton_status_t baton_sparse_stats(baton_sparse_t *sparse,
                                                baton_sparse_stats_t *out);

#ifdef __cplusplus
}
#endif
#endif
