#include "support/program.h"

#include "support/values.h"

#include <string.h>

enum { ALL_PLACES = PROGRAM_HOST | PROGRAM_DEVICE | PROGRAM_ANY };

/* ---- the steps of an epoch ---------------------------------------------- */

enum { SAMPLE_CHAIN, SAMPLE_SENT, SAMPLE_TAKEN, SAMPLE_LENGTH };

static uint64_t sampled(const program_step_t *step, uint64_t epoch,
                        uint64_t what)
{
    support_random_t random = support_random(step->salt + what, epoch);
    return support_random_next(&random);
}

static bool is_sent(const program_step_t *step, uint64_t epoch)
{
    return !step->chosen || sampled(step, epoch, SAMPLE_SENT) % 3 != 0;
}

static bool is_done(const program_step_t *step, uint64_t epoch)
{
    return is_sent(step, epoch) &&
           !(step->may_stray && sampled(step, epoch, SAMPLE_TAKEN) % 3 == 0);
}

static bool has_own_length(const program_t *program, const program_step_t *step)
{
    return step->length == (int)(step - program->steps);
}

static bool sets_length(const program_step_t *step, uint64_t epoch)
{
    return sampled(step, epoch, SAMPLE_LENGTH) % 4 != 0;
}

static size_t whole(const program_t *program, const program_step_t *step)
{
    return program->offsets[step->end] - program->offsets[step->first];
}

static size_t bytes_in(const program_t *program, const program_step_t *step,
                       uint64_t epoch)
{
    size_t most = whole(program, step);
    size_t element = baton_dtype_size(program->dtype);
    if (step->length != PROGRAM_NONE && !has_own_length(program, step)) {
        return bytes_in(program, &program->steps[step->length], epoch);
    }
    return step->length == PROGRAM_NONE || !sets_length(step, epoch)
               ? most
               : sampled(step, epoch, SAMPLE_LENGTH) / 4 %
                     (most / element + 1) * element;
}

static void change(const program_step_t *step, uint64_t epoch,
                   unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(at[i] * 5U + step->salt + 31 * epoch + 7 * i);
    }
}

size_t program_bytes(const program_t *program)
{
    return (size_t)program->options.ranks * PROGRAM_SLOTS * program->slot_bytes;
}

unsigned char *program_slot(const program_t *program, unsigned char *memory,
                            int rank, int slot)
{
    return memory + (size_t)(rank * PROGRAM_SLOTS + slot) * program->slot_bytes;
}

static void run_step(const program_t *program, const program_step_t *step,
                     uint64_t epoch, unsigned char *memory)
{
    size_t at = program->offsets[step->first];
    size_t bytes = bytes_in(program, step, epoch);
    unsigned char *target =
        program_slot(program, memory, step->peer, step->target) + at;
    const unsigned char *left =
        program_slot(program, memory, step->rank, step->left) + at;
    const unsigned char *right =
        program_slot(program, memory, step->rank, step->right) + at;
    if (step->kind == PROGRAM_COPY || step->kind == PROGRAM_MESSAGE) {
        memmove(target, left, bytes);
    } else if (step->kind == PROGRAM_REDUCE && bytes > 0) {
        program->op->reduce(program->op->arg, target, left, right,
                            bytes / baton_dtype_size(program->dtype),
                            program->dtype);
    } else if (step->kind >= PROGRAM_CALL) {
        change(step, epoch, target, bytes);
    }
}

void program_run(const program_t *program, uint64_t epoch,
                 unsigned char *memory)
{
    for (int i = 0; i < program->step_count; i++) {
        if (is_done(&program->steps[i], epoch)) {
            run_step(program, &program->steps[i], epoch, memory);
        }
    }
}

/* ---- sampling ----------------------------------------------------------- */

enum { READS = 1, WRITES = 2 };

static int below(support_random_t *random, int bound)
{
    return (int)support_random_below(random, (uint64_t)bound);
}

static bool allows(const program_slot_t *slot, const program_step_t *step,
                   int access)
{
    bool allowed = true;
    for (int part = step->first; part < step->end; part++) {
        allowed = allowed && !slot->sealed[part] &&
                  ((access & READS) == 0 || slot->defined[part]) &&
                  ((access & WRITES) == 0 || !slot->read[part]);
    }
    return allowed;
}

/* Returns a slot that is in one of these places, and that the step may access
   in this way. Returns PROGRAM_NONE if there is none. */
static int choose_slot(const program_t *program, support_random_t *random,
                       int rank, int places, int access,
                       const program_step_t *step)
{
    int begin = below(random, PROGRAM_SLOTS);
    for (int i = 0; i < PROGRAM_SLOTS; i++) {
        int at = (begin + i) % PROGRAM_SLOTS;
        const program_slot_t *slot = &program->slots[rank][at];
        if ((slot->place & places) != 0 && allows(slot, step, access)) {
            return at;
        }
    }
    return PROGRAM_NONE;
}

/* Chooses operands. All operands of a reduction must be in the same kind of
   memory. */
static bool sample_operands(const program_t *program, support_random_t *random,
                            program_step_t *step)
{
    int places = ALL_PLACES;
    if (step->kind >= PROGRAM_CALL) {
        places =
            step->kind == PROGRAM_DEVICE_CALL ? PROGRAM_DEVICE : PROGRAM_HOST;
        step->target = choose_slot(program, random, step->rank, places,
                                   READS | WRITES, step);
        return step->target != PROGRAM_NONE;
    }
    if (step->kind == PROGRAM_REDUCE) {
        places = !program->options.devices || below(random, 3) == 0
                     ? PROGRAM_HOST
                     : PROGRAM_DEVICE | PROGRAM_ANY;
        step->right =
            choose_slot(program, random, step->rank, places, READS, step);
    }
    step->left = choose_slot(program, random, step->rank, places, READS, step);
    step->target =
        choose_slot(program, random, step->peer, places, WRITES, step);
    bool onto_itself = step->peer == step->rank && step->left == step->target &&
                       step->kind != PROGRAM_REDUCE;
    return step->left != PROGRAM_NONE && step->target != PROGRAM_NONE &&
           step->right != PROGRAM_NONE && !onto_itself;
}

static program_kind_t sample_kind(const program_options_t *options,
                                  support_random_t *random)
{
    program_kind_t kind = (program_kind_t)below(
        random, below(random, 2) == 0 ? PROGRAM_CALL : PROGRAM_DEVICE_CALL + 1);
    bool has = (kind != PROGRAM_MESSAGE || !options->local) &&
               (kind != PROGRAM_ASYNC || options->async) &&
               (kind != PROGRAM_DEVICE_CALL || options->devices);
    return has ? kind : PROGRAM_CALL;
}

/* Gives the step a length. This is the length of a message that the step's rank
   has received. If the step is a message itself, it gets a new length of its
   own. */
static void sample_length(const program_t *program, support_random_t *random,
                          program_step_t *step)
{
    int begin = below(random, program->step_count + 1);
    for (int i = 0; i < program->step_count && below(random, 8) > 0; i++) {
        int at = (begin + i) % program->step_count;
        const program_step_t *of = &program->steps[at];
        if (of->kind == PROGRAM_MESSAGE && of->peer == step->rank &&
            of->length != PROGRAM_NONE && !of->chosen) {
            step->first = of->first;
            step->end = of->end;
            step->length = at;
            return;
        }
    }
    if (step->kind == PROGRAM_MESSAGE && below(random, 3) == 0) {
        step->length = program->step_count;
    }
}

/* Called for a step that some epochs skip. From here on no step may write the
   memory that the step reads, and none may use the memory that it writes. */
static void seal(program_t *program, const program_step_t *step)
{
    program_slot_t *own = program->slots[step->rank];
    program_slot_t *peers = program->slots[step->peer];
    for (int part = step->first; part < step->end; part++) {
        if (step->kind < PROGRAM_CALL) {
            own[step->left].read[part] = true;
            own[step->right].read[part] |= step->kind == PROGRAM_REDUCE;
        }
        peers[step->target].sealed[part] = true;
    }
}

/* Adds a random step to the program. If `sender` is not PROGRAM_NONE, the step
   is a message from rank `sender` to the next rank.

   If a rank sends a message that its peer does not receive in the epoch, the
   rank waits until the peer's epoch has ended. So such messages must not form a
   cycle of ranks. */
static void sample_step(program_t *program, support_random_t *random,
                        int sender)
{
    int ranks = program->options.ranks;
    int rank = sender != PROGRAM_NONE ? sender : below(random, ranks);
    int first = below(random, PROGRAM_PARTS);
    program_step_t step = {
        .kind = sender != PROGRAM_NONE ? PROGRAM_MESSAGE
                                       : sample_kind(&program->options, random),
        .rank = rank,
        .peer = rank,
        .first = first,
        .end = first + 1 + below(random, PROGRAM_PARTS - first),
        .length = PROGRAM_NONE,
        .salt = support_random_next(random)};
    if (step.kind <= PROGRAM_CALL && below(random, 2) == 0) {
        sample_length(program, random, &step);
    }
    if (step.kind == PROGRAM_MESSAGE) {
        step.peer =
            sender != PROGRAM_NONE ? (rank + 1) % ranks : below(random, ranks);
    }
    if (!sample_operands(program, random, &step)) {
        return;
    }
    step.chosen = sender == PROGRAM_NONE && below(random, 5) == 0;
    step.may_stray = step.chosen && step.kind == PROGRAM_MESSAGE &&
                     step.rank < step.peer && below(random, 2) == 0;
    if (step.chosen) {
        seal(program, &step);
    } else if (step.length == PROGRAM_NONE) {
        memset(&program->slots[step.peer][step.target].defined[step.first],
               true, (size_t)(step.end - step.first) * sizeof(bool));
    }
    if (step.kind == PROGRAM_MESSAGE) {
        program->talks[step.rank] = program->talks[step.peer] = true;
    }
    program->steps[program->step_count++] = step;
}

static void sample_slots(program_t *program, support_random_t *random)
{
    for (int i = 0; i < program->options.ranks * PROGRAM_SLOTS; i++) {
        int at = i % PROGRAM_SLOTS;
        program_slot_t *slot = &program->slots[i / PROGRAM_SLOTS][at];
        slot->scratch = at > 1 && below(random, 3) == 0;
        if (!program->options.devices) {
            slot->place = PROGRAM_HOST;
        } else if (at < 2) {
            slot->place = PROGRAM_DEVICE >> at;
        } else {
            slot->place = slot->scratch && below(random, 2)
                              ? PROGRAM_ANY
                              : 1 + below(random, 2);
        }
        memset(slot->defined, !slot->scratch, sizeof slot->defined);
    }
}

void program_sample(program_t *program, const program_options_t *options,
                    support_random_t *random)
{
    static const baton_dtype_t dtypes[] = {BATON_U8, BATON_I32, BATON_U64};
    bool small = below(random, 3) == 0;
    memset(program, 0, sizeof *program);
    program->options = *options;
    program->dtype = dtypes[below(random, 3)];
    program->op = support_op(below(random, 4) == 0 ? SUPPORT_XOR : SUPPORT_SUM);
    size_t element = baton_dtype_size(program->dtype);
    for (int part = 0; part < PROGRAM_PARTS; part++) {
        int most = 20;
        if (!small) {
            most = options->part_bytes / (below(random, 2) == 0 ? 1 : 4);
        }
        size_t count = (size_t)below(random, most) / element;
        program->offsets[part + 1] =
            program->offsets[part] +
            (below(random, 8) > 0 ? count : 0) * element;
    }
    program->slot_bytes = program->offsets[PROGRAM_PARTS];
    sample_slots(program, random);
    for (int rank = 0; rank < options->ranks && options->connected; rank++) {
        sample_step(program, random, rank);
    }
    for (int i = 1 + below(random, PROGRAM_STEPS - PROGRAM_RANKS); i > 0; i--) {
        sample_step(program, random, PROGRAM_NONE);
    }
}

/* ---- functions of nodes ------------------------------------------------- */

static baton_status_t taken(bool is)
{
    return is ? BATON_OK : BATON_SKIP;
}

static baton_status_t if_sent(void *arg, baton_call_t *call)
{
    const program_site_t *site = arg;
    return taken(is_sent(site->step, baton_call_epoch(call)));
}

static baton_status_t if_not_sent(void *arg, baton_call_t *call)
{
    return taken(if_sent(arg, call) == BATON_SKIP);
}

static baton_status_t if_done(void *arg, baton_call_t *call)
{
    const program_site_t *site = arg;
    return taken(is_done(site->step, baton_call_epoch(call)));
}

static baton_status_t if_not_done(void *arg, baton_call_t *call)
{
    return taken(if_done(arg, call) == BATON_SKIP);
}

static baton_status_t decide(void *arg, baton_call_t *call)
{
    const program_site_t *site = arg;
    uint64_t epoch = baton_call_epoch(call);
    if (baton_call_length(call, site->length) != SIZE_MAX) {
        return BATON_ERR_STATE;
    }
    return !sets_length(site->step, epoch)
               ? BATON_OK
               : baton_call_set_length(
                     call, site->length,
                     bytes_in(site->part->program, site->step, epoch));
}

void program_begin(program_site_t *site, baton_call_t *call)
{
    site->epoch = baton_call_epoch(call);
    site->address = baton_call_address(call, site->view);
}

void program_change(const program_site_t *site, void *memory)
{
    change(site->step, site->epoch, memory, site->view.bytes);
}

static baton_status_t change_in_call(void *arg, baton_call_t *call)
{
    const program_site_t *site = arg;
    uint64_t epoch = baton_call_epoch(call);
    size_t length = site->step->length != PROGRAM_NONE
                        ? baton_call_length(call, site->length)
                        : SIZE_MAX;
    baton_status_t status = site->part->fault != NULL
                                ? site->part->fault(site->part, epoch)
                                : BATON_OK;
    if (status == BATON_OK) {
        change(site->step, epoch, baton_call_address(call, site->view),
               length < site->view.bytes ? length : site->view.bytes);
    }
    return status;
}

/* ---- schedules ---------------------------------------------------------- */

/* Makes the node come after the earlier nodes that use the same parts of the
   slot. A node that only reads the parts need not come after another node that
   only reads them. */
static void touch(program_part_t *part, baton_node_t node, int slot,
                  const program_step_t *step, bool writes)
{
    for (int i = 0; i < part->touch_count; i++) {
        const program_touch_t *other = &part->touches[i];
        if (other->slot == slot && other->node.index != node.index &&
            other->first < step->end && step->first < other->end &&
            (writes || other->writes)) {
            baton_before(part->schedule, other->node, node);
        }
    }
    part->touches[part->touch_count++] =
        (program_touch_t){node, slot, step->first, step->end, writes};
}

/* Makes the node one of two branches. Each epoch takes one of them:

       yes --> node --+
                      +-- any --> nop
       no ------------+                                                   */
static baton_node_t choose(program_part_t *part, program_site_t *site,
                           baton_node_t node, bool sends)
{
    baton_schedule_t *s = part->schedule;
    baton_node_t yes = baton_add_call(s, sends ? if_sent : if_done, site);
    baton_node_t no =
        baton_add_call(s, sends ? if_not_sent : if_not_done, site);
    baton_node_t any = baton_add_nop(s);
    baton_set_optional(s, node);
    baton_set_need(s, any, BATON_NEED_ANY);
    baton_before(s, yes, node);
    baton_before(s, node, any);
    baton_before(s, no, any);
    return any;
}

/* Finishes a node. At random, makes it come after one of the first `known`
   nodes, even though that is not necessary. If some epochs skip the step, makes
   the node one of two branches (`choose`). */
static void finish(program_part_t *part, program_site_t *site,
                   baton_node_t node, bool sends, int known)
{
    const program_step_t *step = site->step;
    uint64_t chance = sampled(step, 0, SAMPLE_CHAIN);
    if (known > 0 && chance % 3 == 0) {
        baton_before(part->schedule, part->nodes[chance / 3 % (uint64_t)known],
                     node);
    }
    if (step->chosen) {
        node = choose(part, site, node, sends);
    }
    if (!sends || !step->may_stray) {
        part->nodes[part->node_count++] = node;
    }
}

static baton_view_t view_of(const program_part_t *part, int slot,
                            const program_step_t *step)
{
    return baton_view(part->buffers[slot], part->program->offsets[step->first],
                      whole(part->program, step));
}

/* Gives the node the length that the step names: that of a message which the
   rank has received before. */
static void follow_length(program_part_t *part, program_site_t *site,
                          baton_node_t node)
{
    const program_step_t *step = site->step;
    site->length = part->received[step->length];
    baton_before(part->schedule, part->receives[step->length], node);
    if (step->kind != PROGRAM_CALL) {
        baton_set_length(part->schedule, node, site->length);
    }
}

static void add_local(program_part_t *part, program_site_t *site)
{
    baton_schedule_t *s = part->schedule;
    const program_step_t *step = site->step;
    baton_view_t left = view_of(part, step->left, step);
    baton_node_t node = {0};
    int known = part->node_count;
    site->view = view_of(part, step->target, step);
    switch (step->kind) {
    case PROGRAM_COPY:
        node = baton_add_copy(s, site->view, left);
        break;
    case PROGRAM_REDUCE:
        node = baton_add_reduce_local(s, part->program->dtype,
                                      part->program->op, site->view, left,
                                      view_of(part, step->right, step));
        touch(part, node, step->right, step, false);
        break;
    case PROGRAM_ASYNC:
        node = baton_add_async(s, part->async, site);
        break;
    case PROGRAM_DEVICE_CALL:
        node = baton_add_device_call(s, part->device_call, site);
        break;
    case PROGRAM_CALL:
    case PROGRAM_MESSAGE:
        node = baton_add_call(s, change_in_call, site);
        break;
    }
    if (step->length != PROGRAM_NONE) {
        follow_length(part, site, node);
    }
    if (step->kind < PROGRAM_MESSAGE) {
        touch(part, node, step->left, step, false);
    }
    touch(part, node, step->target, step, true);
    finish(part, site, node, false, known);
}

static void add_send(program_part_t *part, program_site_t *site, int known)
{
    baton_schedule_t *s = part->schedule;
    const program_step_t *step = site->step;
    baton_node_t send =
        baton_add_send(s, step->peer, view_of(part, step->left, step));
    if (has_own_length(part->program, step)) {
        site->length = baton_add_length(s);
        baton_set_length(s, send, site->length);
        baton_before(s, baton_add_call(s, decide, site), send);
    } else if (step->length != PROGRAM_NONE) {
        follow_length(part, site, send);
    }
    touch(part, send, step->left, step, false);
    finish(part, site, send, true, known);
}

static void add_recv(program_part_t *part, program_site_t *site, int known)
{
    baton_schedule_t *s = part->schedule;
    const program_step_t *step = site->step;
    int index = (int)(step - part->program->steps);
    baton_node_t recv =
        baton_add_recv(s, step->rank, view_of(part, step->target, step));
    part->receives[index] = recv;
    if (step->length != PROGRAM_NONE) {
        part->received[index] = baton_add_length(s);
        baton_set_length(s, recv, part->received[index]);
    }
    touch(part, recv, step->target, step, true);
    finish(part, site, recv, false, known);
}

static void add_buffers(program_part_t *part)
{
    const program_t *program = part->program;
    for (int i = 0; i < PROGRAM_SLOTS; i++) {
        const program_slot_t *slot = &program->slots[part->rank][i];
        part->buffers[i] =
            slot->scratch
                ? baton_buffer_scratch(part->schedule, program->slot_bytes)
                : baton_buffer_bind(part->schedule, part->memory[i],
                                    program->slot_bytes);
        if (slot->place != PROGRAM_ANY) {
            baton_buffer_set_memory(part->schedule, part->buffers[i],
                                    slot->place == PROGRAM_DEVICE
                                        ? BATON_MEMORY_DEVICE
                                        : BATON_MEMORY_HOST);
        }
    }
}

/* If a rank sends to itself, the receive must not come after the send, since
   the send may wait for the receive. */
void program_build(program_part_t *part, baton_schedule_t *schedule)
{
    const program_t *program = part->program;
    part->schedule = schedule;
    part->touch_count = part->node_count = 0;
    add_buffers(part);
    for (int i = 0; i < program->step_count; i++) {
        const program_step_t *step = &program->steps[i];
        program_site_t *site = &part->sites[i];
        int known = part->node_count;
        *site = (program_site_t){.part = part, .step = step};
        if (step->kind != PROGRAM_MESSAGE && step->rank == part->rank) {
            add_local(part, site);
        }
        if (step->kind == PROGRAM_MESSAGE && step->rank == part->rank) {
            add_send(part, site, known);
        }
        if (step->kind == PROGRAM_MESSAGE && step->peer == part->rank) {
            add_recv(part, site, known);
        }
    }
}
