/* Sparse all-reduce in full: ranks send the largest entries of their gradients,
   and what is left out waits in a residual for a later step. Here is what the
   options of baton.h mean; steps in the order of a stream, residuals,
   checkpoints, costs and statistics.

       gradient --+--> accumulate --> select, exchange, sum --> result
                  |        ^                      |
                  |        +------ residual <-----+

   The collective owns the residual, since only it knows what was left out on
   the way. The result of a step is the sum of the entries that the ranks
   selected, the same on every rank, bit for bit. Sums that are exactly 0 are
   left out: with SPARDL, GTOPK and OKTOPK the residuals keep what cancels
   there, with the other algorithms it is gone. For all algorithms the sum over
   ranks of gradient and old residual equals the result plus the sum of the new
   residuals, up to rounding. Quantised values are the exception: what their
   mean lacks is dropped.

   NaNs and infinities are the largest of all, so they are sent first; but a
   step sends k of them, and those of one bad gradient of n come back out of the
   residual for n/k steps. So don't start a step with a gradient that is not
   finite: all ranks skip it, if one of them has one. If results have them
   (not_finite of baton_sparse_stats_t), every rank clears its residual and
   velocity by baton_sparse_set_residual, or loads a state of before, and the
   weights go back to a checkpoint.

   "The same on all ranks" is checked for options (baton_sparse_create), and for
   nothing else.

   When a step has failed, the residual is as before the step, and its gradient
   must stay as it is; all ranks recover the group (baton_group_recover). A step
   that any rank has completed is then completed on all ranks. So after a
   recovery wait again for the step that was not known to have ended: on all
   ranks that lack its result wait returns that, or BATON_ERR_STATE, and then
   start the step again. (With BATON_MEMORY_DEVICE only ranks that had completed
   it have the result.) What an algorithm has learned from earlier steps (h,
   thresholds) it learns anew.

   With options.partial a step does not wait for every rank (partial.h has the
   modes, and names the paper):

       start --> [pending] ---+          all of it, or nothing
                              v
       activation ---------> take --> select, exchange, sum --> result, residual

   The k-th start of a rank belongs to epoch k. It adds the gradient, clipped,
   to what is pending on this rank; when it returns, the gradient is the
   caller's again. An epoch begins as options.mode says, and on each rank when
   its activation arrives there. If a gradient is pending then, the epoch takes
   all that the rank has: what is pending, and the residual. If none is, it
   takes nothing: the rank passes on what others have sent it, and its own lists
   are empty.

   So a rank that starts step k late leaves its gradient to the next epoch that
   begins there. Its start and wait return at once with the result of epoch k,
   and `included` is false. Every rank gets the result of every epoch, in order:
   wait returns epoch k's in step k. A rank may be `history` epochs behind;
   beyond that it holds up the others.

   Momentum follows a rank's own starts, in their order, whichever epoch takes
   them: each adds u (or u + g) to what is pending. Where a result has an entry,
   u becomes 0 once wait has returned it, whether or not it was `included`. In
   the first `warmup` epochs all entries are sent, and u is not cleared.

   A rank that contributed nothing may have to drop entries of others on their
   way (SPARDL, GTOPK): they go to its residual. So whenever no epoch runs, the
   sum of all gradients that were started (with momentum: of all u) equals the
   sum of all results, residuals and pending gradients, up to rounding. That
   holds across failures, too. An epoch that any rank has completed when the
   group is recovered is completed on all, and its result is handed to those
   that failed in it. What other epochs had taken is pending again, so no
   gradient is started again. After a recovery, before its next start, a rank
   gets the results that it has missed, one by one, so that all ranks have had
   the same ones:

       while (baton_sparse_wait(sparse, -1, &result) == BATON_OK)
           update(&result);        // then BATON_ERR_STATE: that was the last

   With options.on_loss BATON_ON_LOSS_CONTINUE a partial sparse all-reduce goes
   on by itself when ranks are lost, as a partial all-reduce does (partial.h has
   the details): the survivors agree on who they are, and go on with the next
   epoch, by the same calls. No call fails, and no group is shrunk:
   - Each epoch has one result, the same on all survivors, which wait returns in
     order. What one of them got before the loss is handed to those that missed
     it. An epoch that only dead ranks had ended is run again.
   - What a survivor has started is in one result, in a residual, or pending,
     except what a lost rank's residual held: with SPARDL and GTOPK that
     includes entries of others, which it had dropped on their way. In between,
     residual and velocity are BATON_ERR_BUSY for a moment, as while an epoch
     runs; with manual progress, until test or wait is called.
   - `average` and `clip` count the ranks that live, mode_ranks is at most their
     number, and the algorithm stays.
   - A rank that is lost while all connect is no error: the others begin without
     it. From then on the application may shrink the group that was given to
     create, use it for other things, and destroy it.
   - BATON_ERR_TRANSPORT, BATON_ERR_NO_MEMORY: for good, as all errors of steps:
     destroy it. The others then get BATON_ERR_STATE, which names the rank that
     has destroyed it. All ranks destroy theirs together, as with a partial.

   In a cost-only simulation (sim.h) there are no vectors: gradients may be
   NULL, results have no entries, and messages are as long as full blocks make
   them.

   With options.memory BATON_MEMORY_DEVICE gradients are in the memory of the
   engine's device (device.h), and a step may be in the order of a stream:

       backward<<<grid, block, 0, stream>>>(gradient);
       baton_sparse_start_on(sparse, stream, gradient);
       other_work<<<grid, block, 0, stream>>>();    // none of them blocks
       baton_sparse_wait_on(sparse, stream, sum);
       update<<<grid, block, 0, stream>>>(weights, sum);

   Residual and velocity are in the device's memory, too, and the device
   accumulates and selects. The selected entries come to the host; those of the
   result, and those that change the residual, go back. Results have the bits of
   those on the host, except for the signs of zeros in dense steps. The device
   must have selection (device.h; CUDA's has it), and the algorithm must be
   SPARDL, TOPKA, REDSYNC or DENSE.

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

/* Algorithms: enumerator, name. Words are those that a rank of P sends and
   receives in one step; a word is an index or a value.

   SPARDL   Spar-Reduce-Scatter in teams of m = P/d ranks, an exchange between
            the d teams, all-gather in the team. 2 ceil(log2 m) + ceil(log2 d)
            rounds; d = 1: 4k(P-1)/P words.
   TOPKA    all-gather of each rank's k largest. ceil(log2 P) rounds, 2(P-1)k
            words.
   TOPKDSA  each of P regions is summed by its owner, and gathered; it is dense
            where that is shorter. P - 1 + 2 ceil(log2 P) rounds.
   GTOPK    binomial tree that keeps k entries at every node, then a broadcast.
            2 ceil(log2 P) rounds, at most 4k ceil(log2 P) words.
   OKTOPK   as TOPKDSA, with thresholds that are used again in later steps, and
            regions that follow the data. P - 1 + 2 ceil(log2 P) rounds. A rank
            receives into P - 1 buffers of 2k entries.
   REDSYNC  as TOPKA, with RedSync's selections and messages.
   DENSE    all-reduce of the whole gradient, where it is; on ranks that share
            hosts by the algorithm that baton_add_allreduce takes. The residual
            stays zero. */
#define BATON_SPARSE_ALGORITHM_LIST(X)                                         \
    X(SPARDL, "spardl")                                                        \
    X(TOPKA, "topka")                                                          \
    X(TOPKDSA, "topkdsa")                                                      \
    X(GTOPK, "gtopk")                                                          \
    X(OKTOPK, "oktopk")                                                        \
    X(REDSYNC, "redsync")                                                      \
    X(DENSE, "dense")

/* "auto", "spardl" ...; "?" for any other value. */
const char *baton_sparse_algorithm_name(baton_sparse_algorithm_t algorithm);

/* For options.teams: the number that costs least. */
enum { BATON_SPARSE_TEAMS_AUTO = -1 };

/* ---- options -------------------------------------------------------------

   name            in messages. It pairs the ranks: the same on all, even where
                   other options differ. NULL means "sparse".
   algorithm       AUTO is the one that costs least, see baton_sparse_cost; it
                   need not be SPARDL.
   count           1 to UINT32_MAX.
   k, density      k is 1 to n. If it is 0, density counts: above 0, at most 1.
   max_k           the largest k that will be set; 0 means k.
   teams           SPARDL: d, a divisor of P; 0 means 1, which selects best;
                   BATON_SPARSE_TEAMS_AUTO: the cheapest. Above 1 with SPARDL
                   and AUTO only.
   exchange        how the teams of SparDL exchange their sums. RSAG: recursive
                   doubling, d is a power of two. BSAG: Bruck all-gather of each
                   team's h largest, any d. AUTO: RSAG where d is a power of
                   two, else BSAG. Others with SPARDL and AUTO only.
   momentum        m: u = m u + g, and u is accumulated. u becomes 0 where the
                   result has an entry (SPARDL, GTOPK), where this rank has sent
                   one (TOPKA, TOPKDSA, REDSYNC), or both (OKTOPK). With
                   nesterov u = m (u + g), and u + g is accumulated.
   short_velocity  u is kept as bf16, rounded to nearest even, in half the
                   memory, of which a step then reads and writes 4 bytes an
                   element less. What rounding takes off u, with what it would
                   have added in all later steps, m / (1 - m) times as much, is
                   accumulated at once: of what gradients add up to over time
                   nothing is lost. baton_sparse_velocity and states still have
                   n elements of f32; those that are set or imported are
                   rounded. With momentum, f32 and gradients in host memory.
                   Ranks may differ.
   clip            c: a gradient whose norm is above c / sqrt(P) is scaled to
                   that before it is accumulated; 0 means never.
   redsync         how RedSync selects. EXACT: the fastest here. TRIMMED: the
                   same k, by the paper's trimming. SEARCH: k to 2k, by a
                   threshold that is searched. SAMPLED: that threshold, searched
                   every fifth step only. All but EXACT with REDSYNC only.
   quantise        even steps send the largest positive entries, odd steps the
                   smallest negative ones; of their values only the mean is
                   sent. With REDSYNC only, and not with SAMPLED.
   link            the only costs by which AUTO chooses; zeros mean the costs of
                   this machine (costs.h), and of its processors. Ranks may
                   differ where algorithm and teams are given.
   partial         see above. Mode to seed are as in baton_partial_options_t,
                   but `history` 0 means 4, and max_staleness 0 means that W is
                   the bound; it is at most W. With SPARDL (which AUTO takes
                   then), TOPKA (which always sends k entries), TOPKDSA and
                   GTOPK, and gradients in host memory. Memory: two vectors of n
                   elements more, and history + 2 results; with warmup, messages
                   and results have room for n entries.
   on_loss         see above; with partial alone, and teams 0 or 1. Memory: a
                   result more. BATON_ERR_UNSUPPORTED: in a simulated group.
                   BATON_ERR_SYSTEM: no thread; the others wait for this rank
                   until their timeout then.
   in_place        the caller adds its gradients to the residual itself: see
                   baton_sparse_accumulator. With SPARDL (which AUTO takes then)
                   and DENSE, and gradients in host memory; without partial,
                   momentum and clip. Ranks may differ, except with AUTO.
                   Memory: n elements, 2n more from the first dense step on.
   memory          where gradients are. Ranks may differ, except with AUTO. With
                   BATON_MEMORY_DEVICE, the host has n elements, of memory that
                   the device copies at full speed, as is that of results; the
                   device has 2n elements, or 4n with momentum. */

/* ---- life -------------------------------------------------------------- */

/* baton_sparse_create is collective: all ranks create with the same options, in
   the same order. It blocks until all have, for at most timeout_ms (negative:
   for ever). Where options are wrong, or differ, no rank has a result; the
   message names the option and both values. Where one rank's are wrong, the
   others get its error, or BATON_ERR_MISMATCH if they differ. A rank whose
   options can't be read (NULL, or of a size that no version has) takes part
   under the name in them if the size is 0, else as "sparse". A group or an out
   that is NULL is an error of this rank alone.

   Memory: residual and a work vector, i.e. 2n elements; 2n more with momentum,
   or n with short_velocity; the entries of messages and results. A dense step
   whose gradient can't be summed where it is (with momentum, clipping, or a
   residual) needs n more, from the first one on; that start may be
   BATON_ERR_NO_MEMORY. SPARDL: for each block that is selected from after a
   receive (about half of them) two more lists, with room for all candidates of
   the selection (baton_select_scratch_bytes) and for what arrives.

   BATON_ERR_INVALID, BATON_ERR_MISMATCH, BATON_ERR_TIMEOUT,
   BATON_ERR_NO_MEMORY, and commit's. BATON_ERR_UNSUPPORTED: options.memory is
   the device's, and there is no device that selects, no payload, or it does not
   go with options.partial or the algorithm.

   Create in two halves, for one thread that plays several ranks (sim.h,
   inproc.h): prepare waits for no other rank, and begins the comparison of
   options; connect waits for it, and returns what create would. Between the two
   only connect and destroy are allowed; other calls are BATON_ERR_STATE. */
BATON_CHECKED baton_status_t baton_sparse_prepare(
    baton_group_t *group, const baton_sparse_options_t *options,
    baton_sparse_t **out);
BATON_CHECKED baton_status_t baton_sparse_connect(baton_sparse_t *sparse,
                                                  int timeout_ms);

/* ---- steps ------------------------------------------------------------- */

/* Start and wait are in baton.h. The gradient, n elements, stays as it is until
   the step has ended; with options.partial, until start returns.
   Start: BATON_ERR_BUSY while a step runs; else as baton_schedule_start.
   Test: as baton_schedule_test; BATON_ERR_STATE before connect.
   Wait: as baton_schedule_wait; after a recovery, see above. After an error of
   the step the residual is as before it. BATON_ERR_STATE: no step was started,
   or it is not connected. BATON_ERR_SYSTEM, once: the device has failed when it
   copied a result.
   A result is the library's until the next start. With options.partial a late
   gradient is not `included`: a later epoch takes it. */
BATON_CHECKED baton_status_t baton_sparse_test(baton_sparse_t *sparse,
                                               bool *done_out);

/* A gradient in parts, as the backward pass yields them:

       for (i = buckets; i-- > 0;) {
           backward(i, gradients[i]);
           baton_sparse_contribute(sparse, first[i], count[i], gradients[i]);
       }
       baton_sparse_start(sparse, NULL);

   Contribute adds a part, `count` elements from `first` on, in any order, to
   what the next step begins with. It returns when it has read them. The
   exchange begins with the start, which takes no gradient then; results and
   residuals have the bits of a gradient that was given whole. With
   options.partial no epoch takes anything before that. A clipped gradient, or
   that of a dense or a partial step, is copied, and accumulated by the step.

   Keep all parts until the step has ended: if it fails, contribute them again
   after the recovery. With options.partial a step that was started keeps its
   gradient, for the first epoch that succeeds: there nothing is contributed
   again. Parts of a step that was not started are forgotten when the group is
   recovered (not with on_loss), and by baton_sparse_discard (say, where a
   backward pass was broken off), shrink, flush, set_residual, import and load;
   contribute all of them again. Until the start they are not in what residual
   and export copy.

   Contribute: BATON_ERR_INVALID: there are no such elements, or some were
   contributed before; BATON_ERR_BUSY: a step runs; BATON_ERR_FAILED: the last
   step has failed, and the group was not recovered (with options.partial the
   start says so); BATON_ERR_UNSUPPORTED: with in_place, or gradients on a
   device; BATON_ERR_NO_MEMORY: for n elements, with options.partial and in
   dense steps from the first part on. Start:
   BATON_ERR_STATE names the first element that is missing, and the parts stay;
   BATON_ERR_INVALID: a gradient is given, too. */
BATON_CHECKED baton_status_t baton_sparse_contribute(baton_sparse_t *sparse,
                                                     size_t first, size_t count,
                                                     const void *part);
BATON_CHECKED baton_status_t baton_sparse_discard(baton_sparse_t *sparse);

/* With options.in_place: n elements, zeros at first, that hold what has not
   been sent. The caller adds its gradient to them, e.g. has its backward pass
   accumulate there, and starts the step with a gradient of NULL. The pointer
   stays the same until destroy. From the start until wait or test has returned
   BATON_OK the elements must not change; then what was sent is out of them, and
   the next gradient may be added. After a step that failed they are as they
   were at its start: recover the group, and start again without adding the
   gradient once more, unless a wait behind the recovery returned the result.
   NULL: there is none (BATON_ERR_STATE), or the simulation is cost-only. */
void *baton_sparse_accumulator(const baton_sparse_t *sparse);

/* Starts a dense step without a gradient: its result is the sum of the
   residuals, which are zero afterwards. All ranks call it.
   BATON_ERR_UNSUPPORTED with options.partial: sum what baton_sparse_residual
   copies. */
BATON_CHECKED baton_status_t baton_sparse_flush(baton_sparse_t *sparse);

/* Sets a function that is called when a step (with options.partial, an epoch)
   has ended on this rank, as baton_schedule_on_end does; `epoch` counts its
   calls from 1. A wait that follows has the result at once. Call it between
   steps. Ignored with options.on_loss. */
void baton_sparse_on_end(baton_sparse_t *sparse, baton_end_fn fn, void *arg);

/* Writes the last step's result as n elements. BATON_ERR_STATE while a step
   runs, and before the first. */
BATON_CHECKED baton_status_t baton_sparse_dense(baton_sparse_t *sparse,
                                                void *vector);

/* Writes the same of the elements from `first` on, so many, e.g. of a bucket.
   Reads the entries of this range alone, which it finds by a binary search, so
   that all buckets of a result cost no more than the whole. BATON_ERR_INVALID:
   the gradient has no such elements. */
BATON_CHECKED baton_status_t baton_sparse_dense_range(baton_sparse_t *sparse,
                                                      size_t first,
                                                      size_t count,
                                                      void *elements);

/* After baton_group_shrink: goes on among the survivors, with all that it has.
   Collective over `survivors`, a group that was made of the sparse
   all-reduce's, or of one that was made of that. A step that any survivor has
   completed is completed on all of them, as after a recovery (see above): wait
   again for the step that was not known to have ended, and start it again if
   that is BATON_ERR_STATE. So the survivors have got the same results, and what
   they have contributed is in those and in their residuals (and pending),
   except what a lost rank's residual held. With SPARDL and GTOPK that includes
   entries of others, which it had dropped on their way.

   Afterwards the old group has nothing of it. `average` and `clip` count the
   ranks that are left; an algorithm that was chosen stays; `teams` is 1 if it
   does not divide them, and mode_ranks is at most their number. Until this has
   returned BATON_OK, other calls but destroy are BATON_ERR_STATE.
   BATON_ERR_TRANSPORT: another rank was lost: shrink `survivors`, and call this
   for the group of that, on all ranks of it. BATON_ERR_TIMEOUT: call it again.
   BATON_ERR_INVALID: survivors is NULL, or was destroyed. BATON_ERR_STATE: not
   connected. BATON_ERR_UNSUPPORTED: gradients are on a device, the simulation
   is cost-only, or it goes on by itself (on_loss). BATON_ERR_NO_MEMORY: this
   rank can't go on in `survivors`, and the others wait for it until their
   timeout. To go on, all ranks shrink `survivors`, and call this for the group
   of that. */
BATON_CHECKED baton_status_t baton_sparse_shrink(baton_sparse_t *sparse,
                                                 baton_group_t *survivors,
                                                 int timeout_ms);

/* Whether a rank of the group that was given to create still takes part. With
   options.on_loss it does until the others have agreed that it is lost; else
   true. Any thread. */
bool baton_sparse_lives(baton_sparse_t *sparse, int rank);

/* ---- in the order of a stream ------------------------------------------

   BATON_ERR_UNSUPPORTED where options.memory is BATON_MEMORY_HOST. Neither call
   blocks the host, or synchronises the device. */

/* Starts a step, as baton_sparse_start does, but it begins when the work that
   is in the stream now has been done, and the step before has ended. The
   gradient stays as it is until the step has ended: only work behind
   baton_sparse_wait_on may overwrite it. Up to 8 steps may be in flight; one
   more is BATON_ERR_BUSY. When one fails, those behind it fail with it. No step
   begins before the results of earlier calls of wait_on have been copied.
   BATON_ERR_INVALID: the gradient is not memory of this device. After these
   steps baton_sparse_start is BATON_ERR_BUSY until a wait or test has returned
   for the last one. */
BATON_CHECKED baton_status_t baton_sparse_start_on(baton_sparse_t *sparse,
                                                   baton_stream_t stream,
                                                   const void *gradient);

/* Work that is put into the stream from now on runs when the step that was
   started last has ended, and its result is in `vector`: n elements of memory
   of this device, or NULL for none. The device writes them out from the
   entries, or copies them from the host after a dense step. If the step has
   failed, the vector is as it was, and the stream goes on: test and wait tell.
   If only the copy fails, because the device does, the next wait returns that
   error; the residual is then that of after the step. A step whose outcome
   nobody has asked for before a recovery counts as failed. BATON_ERR_INVALID:
   the vector is not memory of this device. BATON_ERR_BUSY: 8 results are on
   their way. BATON_ERR_STATE: no step was started. */
BATON_CHECKED baton_status_t baton_sparse_wait_on(baton_sparse_t *sparse,
                                                  baton_stream_t stream,
                                                  void *vector);

/* ---- between steps ----------------------------------------------------- */

/* All of these are BATON_ERR_BUSY while a step runs; with options.partial also
   while an epoch runs that a peer has begun, and after a failed one until the
   group is recovered, baton_sparse_shrink has returned BATON_OK, or, with
   on_loss, the survivors have agreed. With
   options.partial set_k and set_density are BATON_ERR_UNSUPPORTED. Where the
   residual is on a device, residual, export, import, save and load wait until
   it has been copied; BATON_ERR_SYSTEM: the device has failed, and the state is
   as it was. */

/* From the next step on; the same on all ranks. 1 to max_k; a density gives
   max(1, n * density), rounded down. BATON_ERR_INVALID. */
BATON_CHECKED baton_status_t baton_sparse_set_k(baton_sparse_t *sparse,
                                                size_t k);
BATON_CHECKED baton_status_t baton_sparse_set_density(baton_sparse_t *sparse,
                                                      double density);

/* Copies this rank's residual plus what is pending, n elements. */
BATON_CHECKED baton_status_t baton_sparse_residual(baton_sparse_t *sparse,
                                                   void *vector);

/* Copies this rank's velocity, n elements. BATON_ERR_STATE: momentum is 0. */
BATON_CHECKED baton_status_t baton_sparse_velocity(baton_sparse_t *sparse,
                                                   void *vector);

/* Replaces this rank's residual, and with momentum its velocity (else NULL), n
   elements each; what is pending stays. So that nothing is lost when tensors
   are cut anew, or k or the algorithm changes: hand the residuals of the old
   sparse all-reduces to the new ones. Without options.partial the last result
   is gone then. */
BATON_CHECKED baton_status_t baton_sparse_set_residual(baton_sparse_t *sparse,
                                                       const void *residual,
                                                       const void *velocity);

/* This rank's state, for a checkpoint of the caller's: residual, momentum, k,
   the number of steps, and what the algorithm has learned. A run that goes on
   from a state has the same bits as one that was not interrupted, whatever the
   sparse all-reduce that imports it has done before.

   size: bytes of every export; 0 before connect, and without payload. export
   writes so many bytes; `state` needs no alignment. import copies them; the
   caller may free `state` then. A state names its version, rank and options,
   and has a checksum. If something does not fit, import is BATON_ERR_INVALID,
   says what, and changes nothing. Options must be the same, except k (at most
   max_k), link, memory and short_velocity.

   With options.partial a state has what is pending, too, and epochs are
   numbered on, so that the same ranks are elected; but k stays the options'.
   Mode to seed and on_loss may differ; then it goes on by the new ones. All
   ranks export behind the same step, and no rank starts the next before all
   have: call baton_barrier_now behind export, and behind import likewise.
   BATON_ERR_BUSY: an epoch has begun, or ended, whose step this rank has not
   started. With on_loss import is BATON_ERR_BUSY, too, while it goes on after a
   loss; with manual progress baton_sparse_test does that. A state of P ranks
   fits no other number: if a rank is lost before all have imported it, destroy
   the sparse all-reduce, and begin again with P ranks. */
size_t baton_sparse_state_size(const baton_sparse_t *sparse);
BATON_CHECKED baton_status_t baton_sparse_state_export(baton_sparse_t *sparse,
                                                       void *state,
                                                       size_t bytes);
BATON_CHECKED baton_status_t baton_sparse_state_import(baton_sparse_t *sparse,
                                                       const void *state,
                                                       size_t bytes);

/* Exports to a file, and imports from it. Save writes path.new, synchronises it
   with the disk, and renames it: after a crash there is the old file or the new
   one. Both allocate memory for a copy. BATON_ERR_SYSTEM: the file or its
   folder can't be read, written or synchronised. BATON_ERR_INVALID: path or
   path.new is there and no regular file, but a link, a device or a folder,
   which save neither replaces nor follows. */
BATON_CHECKED baton_status_t baton_sparse_save(baton_sparse_t *sparse,
                                               const char *path);
BATON_CHECKED baton_status_t baton_sparse_load(baton_sparse_t *sparse,
                                               const char *path);

/* ---- cost -------------------------------------------------------------- */

/* What a step's messages cost in the model of tuning.h, without selections and
   sums. Every selection is assumed to have as many entries as it may have. */
typedef struct baton_sparse_cost {
    baton_sparse_algorithm_t algorithm; /* that is chosen, never AUTO */
    int teams;                          /* of SPARDL */
    baton_exchange_t exchange;          /* of SPARDL's teams, not AUTO then */
    double us;                          /* of a step */
    double rounds;                      /* of messages, one after the other */
    double messages, bytes;             /* that the busiest rank sends */
} baton_sparse_cost_t;

/* The closed form for these options on so many ranks: for `algorithm` and
   `teams`, or for those that AUTO takes. Where the data decide, it is that of
   the best case: TOPKDSA and OKTOPK if all ranks select the same indices, and
   OKTOPK in a step that does not move its regions; BSAG with the first h, which
   grows up to d times. More teams select worse, since a team sends what is
   large in its own sum; the cost does not show that.

   If options.link says what messages cost, AUTO takes what costs least; that is
   never TOPKDSA or OKTOPK, even in their best case. Else it adds what was
   measured of processors: selecting, merging, and copies on one host, by the
   ranks that share a processor; and takes sums in the worst case. A sparse
   all-reduce knows the hosts and processors of its group; this function assumes
   one host, and a processor for each rank. BATON_ERR_INVALID: as create. Errors
   of baton_costs_get. */
BATON_CHECKED baton_status_t baton_sparse_cost(
    const baton_sparse_options_t *options, int ranks, baton_sparse_cost_t *out);

/* ---- statistics -------------------------------------------------------- */

typedef struct baton_sparse_stats {
    uint64_t steps; /* completed */
    /* Of the last step that was completed, at this rank; messages, bytes and
       rounds of a dense step are not counted: */
    baton_sparse_algorithm_t algorithm; /* DENSE in warm-up */
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;
    uint32_t rounds;           /* of messages, one after the other */
    uint32_t block_selections; /* top-k calls on dense vectors */
    double select_us; /* processor time of all but messages: accumulation,
                         selection, merging, packing; not what a device does */

    uint64_t nnz;        /* entries of the result */
    uint64_t not_finite; /* of these: infinities and NaNs; see above */
    /* In force for the next step: */
    size_t k;
    uint64_t h;       /* BSAG: entries that a team sends of a block */
    double threshold; /* REDSYNC, OKTOPK: the last one, of this rank */
    int teams;        /* d */
} baton_sparse_stats_t;

/* Reads all values of the last result, which are n after a dense step, to count
   those that are not finite. */
BATON_CHECKED baton_status_t baton_sparse_stats(baton_sparse_t *sparse,
                                                baton_sparse_stats_t *out);

#ifdef __cplusplus
}
#endif
#endif
