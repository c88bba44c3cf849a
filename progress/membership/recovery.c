/* Recovery; see recovery.h. */
#include "progress/membership/recovery.h"

#include "progress/epoch/epoch.h"
#include "progress/epoch/queues.h"
#include "progress/membership/notice.h"

/* ---- agreements -------------------------------------------------------- */

/* Ranks agree along a tree. A rank sends to its parent after it has received
   from all its children. Rank 0 then knows that all ranks have reached the
   agreement, and sends to its children, which send to their children. So in
   small groups each rank waits once: 32 ranks on 2 processors agree in 1.4 ms.
   With rounds, in each of which a rank receives from one other rank, they took
   2.8 ms. `seen` has a bit for each child, and bit CHILDREN for the parent. */
enum { CHILDREN = 31 };

/* Returns the rank whose message this rank must receive next; -1: it has
   received all. Stores in *to_out the rank to which it may send now; -1: it may
   send to no rank, or has sent to all. */
static int find_next(const baton_group_t *group,
                     const baton__agreement_t *agreement, int *to_out)
{
    int parent = (group->rank - 1) / CHILDREN;
    int first = group->rank * CHILDREN + 1;
    int end = first + CHILDREN < group->size ? first + CHILDREN : group->size;
    int from = first;
    int to = first + (int)agreement->sent - (group->rank > 0);
    while (from < end && (agreement->seen >> (from - first) & 1) != 0) {
        from++;
    }
    *to_out = -1;
    if (from < end) {
        return from;
    }
    bool all = group->rank == 0 || agreement->seen >> CHILDREN != 0;
    if (to < first) {
        *to_out = parent;
    } else if (all && to < end) {
        *to_out = to;
    }
    return all ? -1 : parent;
}

/* Sends the agreement's message to all ranks to which this rank may send it by
   now: to its parent, and then to its children. Returns true if anything was
   sent. `identity` is that of the schedule that agrees; 0: the group agrees. */
static bool tell_next(const baton_group_t *group, uint64_t identity,
                      baton__agreement_t *agreement)
{
    int to;
    bool moved = false;
    while ((void)find_next(group, agreement, &to), to >= 0) {
        const baton_header_t header = {
            .schedule = identity,
            .epoch = agreement->highest,
            .tag = to > group->rank ? CHILDREN
                                    : (uint32_t)(group->rank - 1) % CHILDREN,
            .incarnation = group->incarnation,
            .kind = agreement == &baton__member_of(group)->farewell
                        ? BATON__MESSAGE_FAREWELL
                        : BATON__MESSAGE_RECOVERY};
        if (group->transport->notify(group->endpoint, to, &header, NULL, 0) ==
            BATON_AGAIN) {
            group->stepper->must_retry = true;
            break;
        }
        agreement->sent++;
        moved = true;
    }
    return moved;
}

static bool are_over(const baton_group_t *group,
                     const baton__agreement_t *agreement)
{
    int to;
    return find_next(group, agreement, &to) < 0 && to < 0;
}

/* Counts one agreement, the group's or a schedule's, as over. */
static void recovery_end_part(baton_group_t *group)
{
    baton__stepper_t *stepper = group->stepper;
    stepper->recovering--;
    /* Pairs with the load in baton__group_is_recovered(). */
    atomic_fetch_sub_explicit(&baton__member_of(group)->recovery_left, 1,
                              memory_order_seq_cst);
    if (stepper->hooks->on_recovered != NULL) {
        stepper->hooks->on_recovered(group);
    }
}

static void begin_part(baton_group_t *group)
{
    group->stepper->recovering++;
    atomic_fetch_add_explicit(&baton__member_of(group)->recovery_left, 1,
                              memory_order_relaxed);
}

/* ---- a schedule ------------------------------------------------------- */

static baton__agreement_t *agreement_of(baton__task_t *task)
{
    return &task->agreements[task->schedule.group->incarnation & 1];
}

/* Resets the task to its state after the commit. */
static void recovery_reset(baton__task_t *task)
{
    baton_schedule_t *schedule = &task->schedule;
    /* In the trace the next epochs count as those of another schedule. */
    atomic_store_explicit(&task->trace, 0, memory_order_relaxed);
    /* This call reads fields that are reset below. */
    baton__epoch_forget_failure(task);
    uint64_t last = schedule->run.epoch;
    schedule->run.epoch = 0;
    task->failing_from = 0;
    uint64_t requested =
        atomic_exchange_explicit(&task->requested, 0, memory_order_acq_rel);
    if (schedule->offload != NULL) {
        /* The flag, a word by which users' streams wait for epochs, never
           falls. So `base`, the offset of the epochs' numbers in it, grows
           instead. This happens after the reset of `requested`, because
           baton_schedule_wait_on reads `base` before `requested`. */
        atomic_fetch_add_explicit(&schedule->offload->base,
                                  requested > last ? requested : last,
                                  memory_order_acq_rel);
        /* All epochs so far have ended, including a failed one that a peer
           began and this rank had not started. */
        baton__queues_raise(schedule, 0);
    }
    atomic_store_explicit(&task->failed, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < task->failure_count && task->failures != NULL;
         i++) {
        atomic_store_explicit(&task->failures[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&task->retired, 0, memory_order_seq_cst);
    baton__task_set_phase(task, BATON__RUN_IDLE);
    /* An epoch that was started just before this call, and has not begun, ends,
       too. */
    while (task->on_end != NULL && task->ended < requested) {
        task->on_end(task->on_end_arg, ++task->ended, task->last_status);
    }
    task->ended = 0;
}

/* Lets a task join the recovery. No epoch or transfer of the task is in
   progress. */
static void recovery_join(baton__task_t *task)
{
    baton_group_t *group = task->schedule.group;
    uint64_t retired = baton__task_retired(task);
    baton__epoch_drop_up_to(&task->schedule, UINT64_MAX);
    /* A recovery that ended early may have left a failure in
       `after_recovery`. */
    if (task->after_recovery != NULL) {
        task->after_recovery->failing_from = 0;
    }
    baton__task_set_phase(task, BATON__RUN_RECOVERING);
    atomic_store_explicit(&task->limit, UINT64_MAX, memory_order_relaxed);
    if (task->on_recover == NULL) {
        recovery_reset(task);
        return;
    }
    begin_part(group);
    group->stepper->agreeing++;
    baton__agreement_t *agreement = agreement_of(task);
    if (retired > agreement->highest) {
        agreement->highest = retired;
    }
}

static void end_schedule(baton_group_t *group)
{
    group->stepper->agreeing--;
    recovery_end_part(group);
}

/* Advances the agreement of a schedule's ranks on the highest epoch that any of
   them has completed. When they have agreed, calls on_recover. Returns true if
   anything happened. */
static bool recovery_advance(baton__task_t *task)
{
    baton_group_t *group = task->schedule.group;
    baton__agreement_t *agreement = agreement_of(task);
    if (task->failure.final) {
        baton__task_set_phase(task, BATON__RUN_FAILED);
        baton__member_of(group)->unrecovered++;
        end_schedule(group);
        return true;
    }
    bool moved = tell_next(group, task->identity, agreement);
    if (!are_over(group, agreement)) {
        return moved;
    }
    if (!task->on_recover(task->on_recover_arg, agreement->highest)) {
        /* Nothing wakes this rank to call on_recover again. */
        group->stepper->must_retry = true;
        return moved;
    }
    *agreement = (baton__agreement_t){0};
    recovery_reset(task);
    end_schedule(group);
    baton__later_failure_t *later = task->after_recovery;
    uint64_t failing_from = later != NULL ? later->failing_from : 0;
    if (failing_from != 0) {
        later->failing_from = 0;
        baton__epoch_fail_from(&task->schedule, failing_from, &later->failure,
                               later->sentence != NULL ? later->sentence : "");
    }
    baton__epoch_begin_if_due(&task->schedule);
    return true;
}

/* ---- a group ---------------------------------------------------------- */

void baton__recovery_begin(baton_group_t *group)
{
    assert(baton__driven_here(group));
    baton__group_set_recovery(group, BATON__RECOVERY_STOPPING);
    baton__member_of(group)->unrecovered = 0;
    begin_part(group);
    for (baton__task_t *t = NULL; (t = baton__stepper_next(group, t));) {
        baton_schedule_t *s = &t->schedule;
        /* An epoch may have been started just now. It begins here, and then
           fails. */
        baton__epoch_begin_if_due(s);
        if (s->run.phase == BATON__RUN_RUNNING ||
            (s->run.phase == BATON__RUN_IDLE && s->plan.messages > 0)) {
            /* Peers may be in an epoch of this schedule, and must join the
               recovery, too. */
            baton__notice_recover(s);
        }
    }
}

/* Handles the recovery messages that were kept. Peers that joined earlier had
   sent them, about schedules that this rank lacked. By now this rank has
   committed those schedules, or never will. */
static void take_recovery_headers(baton_group_t *group)
{
    baton__member_t *member = baton__member_of(group);
    baton__notice_t *all = member->recovery_headers;
    member->recovery_headers = NULL;
    for (const baton__notice_t *notice = all; notice != NULL;
         notice = notice->next) {
        baton__recovery_receive(group, &notice->header, notice->peer);
    }
    baton__group_drop_notices(&all);
}

/* Joins the recovery if no epoch or transfer of the group is in progress and no
   notice is due. From then on this rank is in the next incarnation. */
static bool join_if_quiet(baton_group_t *group)
{
    baton__member_t *member = baton__member_of(group);
    if (member->due_count > 0) {
        return false;
    }
    for (baton__task_t *t = NULL; (t = baton__stepper_next(group, t));) {
        if (atomic_load_explicit(&t->busy, memory_order_relaxed)) {
            return false;
        }
    }
    baton__group_set_recovery(group, BATON__RECOVERY_JOINED);
    /* Keeps this incarnation's records: peers that have not joined yet may
       still ask. */
    baton__member_forget_destroyed(member, group->incarnation);
    group->incarnation++;
    for (baton__task_t *t = NULL; (t = baton__stepper_next(group, t));) {
        member->unrecovered += t->failure.final;
        if (!t->failure.final) {
            recovery_join(t);
        }
    }
    take_recovery_headers(group);
    return true;
}

static bool advance_group(baton_group_t *group)
{
    baton__member_t *member = baton__member_of(group);
    bool moved =
        member->recovery == BATON__RECOVERY_STOPPING && join_if_quiet(group);
    if (member->recovery != BATON__RECOVERY_JOINED) {
        return false;
    }
    baton__agreement_t *agreement = &member->agreements[group->incarnation & 1];
    moved |= tell_next(group, 0, agreement);
    if (are_over(group, agreement)) {
        *agreement = (baton__agreement_t){0};
        baton__group_set_recovery(group, BATON__RECOVERY_OVER);
        recovery_end_part(group);
        moved = true;
    }
    return moved;
}

void baton__recovery_give_up(baton_group_t *group)
{
    assert(baton__driven_here(group));
    if (baton__group_recovers(group)) {
        baton__group_set_recovery(group, BATON__RECOVERY_OVER);
        recovery_end_part(group);
    }
    for (baton__task_t *t = NULL; (t = baton__stepper_next(group, t));) {
        baton__recovery_leave(t);
    }
}

/* Connects this rank to its parent and children in the tree, so that they can
   wake it. Without memory for that, this rank still polls now and then, and so
   notices a farewell late. */
static void contact(const baton_group_t *group)
{
    int parent = (group->rank - 1) / CHILDREN;
    for (int rank = 0; rank < group->size; rank++) {
        bool neighbour = rank == parent || (rank - 1) / CHILDREN == group->rank;
        if (neighbour && rank != group->rank &&
            baton__group_loss(group, rank) == NULL) {
            (void)group->transport->reserve(group->endpoint, rank, 0, 0);
        }
    }
}

/* True if no thread waits for the group's farewell. */
static bool is_in_background(const baton_group_t *group)
{
    return group->root != NULL || baton__member_of(group)->unattended;
}

void baton__recovery_part(baton_group_t *group)
{
    assert(baton__driven_here(group));
    baton__recovery_give_up(group);
    baton__group_set_recovery(group, BATON__RECOVERY_PARTING);
    baton__member_of(group)->parts = true;
    if (is_in_background(group) && group->transport->strangers) {
        contact(group);
    }
    begin_part(group);
}

/* Reports to all living ranks, which may wait for this one, that this rank
   leaves alone, and which rank it has lost first. Ranks without space for the
   notice are not told. */
static void tell_left(const baton_group_t *group)
{
    const uint64_t lost = baton__group_first_lost(group);
    const bool ended = lost > 0 && baton__has_ended(group, (int)lost - 1);
    const baton_header_t header = {.incarnation = group->incarnation,
                                   .kind = BATON__MESSAGE_LEFT,
                                   .tag = ended ? BATON__LEFT_ENDED : 0,
                                   .epoch = lost};
    for (int peer = 0; peer < group->size; peer++) {
        if (peer != group->rank && baton__group_loss(group, peer) == NULL) {
            (void)group->transport->notify(group->endpoint, peer, &header, NULL,
                                           0);
        }
    }
}

/* Sends this rank's farewells if all its notices are sent. The rank goes on
   answering its peers until all of them have sent their farewells, too. After a
   loss this rank leaves without waiting for the others, since a lost rank never
   sends a farewell. */
static bool advance_farewell(baton_group_t *group)
{
    baton__member_t *member = baton__member_of(group);
    if (member->answer_count + member->leaving > 0) {
        return false;
    }
    bool collective = baton__group_is_collective(group);
    bool alone = !collective || baton__member_has_lost(member);
    bool moved = !alone && tell_next(group, 0, &member->farewell);
    bool over = are_over(group, &member->farewell);
    if (alone && collective && !over && !member->all_lost) {
        tell_left(group);
    }
    if (over && !alone && group->root == NULL &&
        group->transport->leave != NULL &&
        !group->transport->leave(group->endpoint)) {
        group->stepper->must_retry = true;
    } else if (alone || over) {
        baton__group_set_recovery(group, BATON__RECOVERY_OVER);
        recovery_end_part(group);
        moved = true;
    }
    return moved;
}

/* Makes a destroyed group dormant after it has sent all notices and farewells
   that it can send for now. A message or a loss rouses the group
   (baton__recovery_rouse). */
static void make_dormant_if_waiting(baton_group_t *group)
{
    baton__member_t *member = baton__member_of(group);
    int to;
    int from = find_next(group, &member->farewell, &to);
    if (group->retired && is_in_background(group) &&
        member->recovery == BATON__RECOVERY_PARTING &&
        member->answer_count + member->leaving == 0 && to < 0 && from >= 0) {
        member->dormant = true;
        group->stepper->recovering--;
    }
}

void baton__recovery_rouse(baton_group_t *group)
{
    assert(baton__driven_here(group));
    baton__member_t *member = baton__member_of(group);
    group->stepper->recovering += member->dormant;
    member->dormant = false;
}

bool baton__recovery_advance(baton__stepper_t *stepper)
{
    assert(baton__stepper_driven_here(stepper));
    bool moved = false;
    stepper->must_retry = false;
    for (baton_group_t *group = stepper->groups; group != NULL;
         group = baton__group_next(group)) {
        baton__member_t *member = baton__member_of(group);
        if (baton__group_recovers(group) && member->first.detail != NULL) {
            baton__recovery_give_up(group);
            moved = true;
        } else if (baton__group_recovers(group)) {
            moved |= advance_group(group);
        } else if (member->recovery == BATON__RECOVERY_PARTING &&
                   !member->dormant) {
            moved |= advance_farewell(group);
            make_dormant_if_waiting(group);
        }
    }
    for (baton__task_t *t = stepper->tasks; t != NULL && stepper->agreeing > 0;
         t = t->next) {
        if (t->schedule.run.phase == BATON__RUN_RECOVERING) {
            moved |= recovery_advance(t);
        }
    }
    return moved;
}

bool baton__recovery_asks(const baton__stepper_t *stepper)
{
    assert(baton__stepper_driven_here(stepper));
    bool asks = stepper->must_retry;
    for (const baton_group_t *g = stepper->groups; g != NULL; g = g->next) {
        asks |= g->transport->strangers;
    }
    return asks && stepper->recovering > 0;
}

void baton__recovery_receive(baton_group_t *group, const baton_header_t *header,
                             int peer)
{
    assert(baton__driven_here(group));
    baton__member_t *member = baton__member_of(group);
    baton__agreement_t *agreement = member->agreements;
    if (header->schedule != 0) {
        baton_schedule_t *schedule = baton__group_find(group, header->schedule);
        if (schedule == NULL && header->incarnation != group->incarnation) {
            /* The schedule may still be committed here, so the message is kept
               for it. */
            baton__group_keep(&member->recovery_headers, 0, header, peer);
            return;
        }
        if (schedule == NULL) {
            baton__notice_answer(group, header, header->epoch, peer);
            return;
        }
        agreement = baton__task_of(schedule)->agreements;
    }
    /* A peer is at most one incarnation ahead, since it waits for this rank. */
    agreement = header->kind == BATON__MESSAGE_FAREWELL
                    ? &member->farewell
                    : agreement + (header->incarnation & 1);
    agreement->seen |= UINT32_C(1) << (header->tag & 31);
    baton__recovery_rouse(group);
    if (header->epoch > agreement->highest) {
        agreement->highest = header->epoch;
    }
}

void baton__recovery_leave(baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    if (task->schedule.run.phase == BATON__RUN_RECOVERING) {
        baton__task_set_phase(task, BATON__RUN_FAILED);
        end_schedule(task->schedule.group);
    }
}

int baton__recovery_awaits(const baton_group_t *group)
{
    assert(baton__driven_here(group));
    const baton__member_t *member = baton__member_of(group);
    uint16_t parity = group->incarnation & 1;
    const baton__agreement_t *waits = NULL;
    if (member->recovery == BATON__RECOVERY_STOPPING) {
        return -1;
    }
    if (member->recovery == BATON__RECOVERY_JOINED) {
        waits = &member->agreements[parity];
    } else if (member->recovery == BATON__RECOVERY_PARTING) {
        /* A peer for which notices are queued may have left alone after a loss,
           without space for a notice that says so. */
        if (member->answer_count + member->leaving > 0) {
            return baton__notice_awaits(group);
        }
        waits = &member->farewell;
    }
    for (baton__task_t *t = NULL;
         waits == NULL && (t = baton__stepper_next(group, t));) {
        if (t->schedule.run.phase == BATON__RUN_RECOVERING) {
            waits = &t->agreements[parity];
        }
    }
    if (waits == NULL) {
        return -1;
    }
    int to;
    return find_next(group, waits, &to);
}
