/* The schedule of a program on one rank. Edges follow from who writes and who
   reads which part of which slot; some more are drawn. */
#include "fuzz/device/world.h"

enum { READERS = 4 * WORLD_STEPS, NODES = 4 * WORLD_STEPS, NONE = -1 };

typedef struct access {
    int writer; /* a node, or NONE */
    int readers[READERS];
    int reader_count;
} access_t;

typedef struct builder {
    baton_schedule_t *schedule;
    world_run_t *run;
    access_t accesses[WORLD_ALL_SLOTS][WORLD_PARTS];
    /* Nodes that fire in every epoch, which may have others behind them. */
    baton_node_t nodes[NODES];
    int node_count;
} builder_t;

/* ---- edges ------------------------------------------------------------- */

static void put_before(const builder_t *self, int before, baton_node_t node)
{
    if (before != NONE && before != (int)node.index) {
        baton_node_t first = {(uint32_t)before};
        baton_before(self->schedule, first, node);
    }
}

static void touch(builder_t *self, baton_node_t node, int slot,
                  const world_step_t *step, bool writes)
{
    for (int part = step->first; part < step->end; part++) {
        access_t *access = &self->accesses[slot][part];
        put_before(self, access->writer, node);
        if (!writes) {
            access->readers[access->reader_count++] = (int)node.index;
            continue;
        }
        for (int i = 0; i < access->reader_count; i++) {
            put_before(self, access->readers[i], node);
        }
        access->reader_count = 0;
        access->writer = (int)node.index;
    }
}

/* The node is one of those that others may be put behind; it may be put behind
   one of these itself. */
static void chain(builder_t *self, baton_node_t node, const world_step_t *step,
                  int known)
{
    if (known > 0 && step->chance % 3 == 0) {
        uint64_t at = step->chance / 3 % (uint64_t)known;
        put_before(self, (int)self->nodes[at].index, node);
    }
    self->nodes[self->node_count++] = node;
}

static baton_view_t view_of(const builder_t *self, int slot,
                            const world_step_t *step)
{
    return baton_view(self->run->buffers[slot],
                      self->run->program->offsets[step->first],
                      world_step_bytes(self->run->program, step));
}

/* ---- functions of nodes ------------------------------------------------ */

static bool is_due(const world_site_t *site, uint64_t epoch)
{
    const world_rank_t *rank = site->run->rank;
    const world_plan_t *plan = rank->world->plan;
    return rank->world->life == 0 && plan->fault == FAULT_NODE &&
           plan->victim == rank->rank &&
           plan->fault_program == site->run->index &&
           plan->fault_epoch == epoch;
}

static baton_status_t change(void *arg, baton_call_t *call)
{
    const world_site_t *site = arg;
    uint64_t epoch = baton_call_epoch(call);
    if (is_due(site, epoch)) {
        return BATON_ERR_LIMIT;
    }
    world_change(site->step, epoch, baton_call_address(call, site->view),
                 site->view.bytes);
    return BATON_OK;
}

/* On a thread of the device, in the order of the stream. */
static void change_on_device(void *arg)
{
    const world_site_t *site = arg;
    emulated_t *device = site->run->rank->device;
    size_t bytes = site->view.bytes;
    emulated_read(device, site->copy, site->address, bytes);
    world_change(site->step, site->epoch, site->copy, bytes);
    emulated_write(device, site->address, site->copy, bytes);
}

static baton_status_t queue_change(void *arg, baton_call_t *call,
                                   baton_stream_t stream)
{
    world_site_t *site = arg;
    site->epoch = baton_call_epoch(call);
    site->address = baton_call_address(call, site->view);
    return emulated_call(site->run->rank->device, stream, change_on_device,
                         site);
}

static void note_async(world_site_t *site, baton_call_t *call,
                       baton_async_t async)
{
    site->epoch = baton_call_epoch(call);
    site->address = baton_call_address(call, site->view);
    site->async = async;
}

static baton_status_t begin_polled(void *arg, baton_call_t *call,
                                   baton_async_t async)
{
    world_site_t *site = arg;
    note_async(site, call, async);
    site->polls = (int)(site->step->salt % 5);
    return BATON_OK;
}

static baton_status_t poll_change(void *arg)
{
    world_site_t *site = arg;
    if (site->polls-- > 0) {
        return BATON_AGAIN;
    }
    world_change(site->step, site->epoch, site->address, site->view.bytes);
    return BATON_OK;
}

static baton_status_t begin_completed(void *arg, baton_call_t *call,
                                      baton_async_t async)
{
    world_site_t *site = arg;
    note_async(site, call, async);
    world_complete_later(site->run->rank->world, site);
    return BATON_OK;
}

static baton_status_t decide_length(void *arg, baton_call_t *call)
{
    const world_site_t *site = arg;
    size_t length =
        world_length(site->run->program, site->step, baton_call_epoch(call));
    return length == SIZE_MAX
               ? BATON_OK
               : baton_call_set_length(call, site->length, length);
}

static baton_status_t take_branch(void *arg, baton_call_t *call)
{
    const world_site_t *site = arg;
    return world_branch_taken(site->step, baton_call_epoch(call)) ? BATON_OK
                                                                  : BATON_SKIP;
}

static baton_status_t leave_branch(void *arg, baton_call_t *call)
{
    return take_branch(arg, call) == BATON_OK ? BATON_SKIP : BATON_OK;
}

/* ---- steps ------------------------------------------------------------- */

static baton_node_t add_change(builder_t *self, const world_step_t *step,
                               world_site_t *site)
{
    static const baton_async_ops_t polled = {.start = begin_polled,
                                             .poll = poll_change};
    static const baton_async_ops_t completed = {.start = begin_completed};
    site->view = view_of(self, step->target, step);
    if (step->kind == STEP_DEVICE_CALL) {
        return baton_add_device_call(self->schedule, queue_change, site);
    }
    if (step->kind == STEP_CALL) {
        return baton_add_call(self->schedule, change, site);
    }
    return baton_add_async(
        self->schedule, step->kind == STEP_POLLED ? &polled : &completed, site);
}

static baton_node_t add_local(builder_t *self, const world_step_t *step,
                              world_site_t *site)
{
    baton_schedule_t *s = self->schedule;
    const world_program_t *program = self->run->program;
    baton_view_t target = view_of(self, step->target, step);
    baton_view_t left = view_of(self, step->left, step);
    baton_node_t node;
    if (step->kind == STEP_COPY) {
        node = baton_add_copy(s, target, left);
        touch(self, node, step->left, step, false);
    } else if (step->kind == STEP_REDUCE) {
        node = baton_add_reduce(s, program->dtype, world_op(program), target,
                                left, view_of(self, step->right, step));
        touch(self, node, step->left, step, false);
        touch(self, node, step->right, step, false);
    } else {
        node = add_change(self, step, site);
    }
    touch(self, node, step->target, step, true);
    return node;
}

static void add_send(builder_t *self, const world_step_t *step,
                     world_site_t *site)
{
    baton_schedule_t *s = self->schedule;
    int known = self->node_count;
    baton_node_t send =
        baton_add_send(s, step->peer, view_of(self, step->left, step));
    touch(self, send, step->left, step, false);
    if (step->kind == STEP_LENGTH) {
        baton_node_t decided = baton_add_call(s, decide_length, site);
        site->length = baton_add_length(s);
        baton_set_length(s, send, site->length);
        baton_before(s, decided, send);
    }
    chain(self, send, step, known);
}

/* known: the nodes of earlier steps. A receive from the rank itself must not be
   behind its send, which may wait for it. */
static void add_recv(builder_t *self, const world_step_t *step,
                     world_site_t *site, int known)
{
    baton_schedule_t *s = self->schedule;
    baton_view_t target = view_of(self, step->target, step);
    baton_node_t recv = baton_add_recv(s, step->rank, target);
    touch(self, recv, step->target, step, true);
    chain(self, recv, step, known);
    if (step->kind != STEP_LENGTH) {
        return;
    }
    baton_node_t copy =
        baton_add_copy(s, view_of(self, step->right, step), target);
    site->received = baton_add_length(s);
    baton_set_length(s, recv, site->received);
    baton_set_length(s, copy, site->received);
    baton_before(s, recv, copy);
    touch(self, copy, step->target, step, false);
    touch(self, copy, step->right, step, true);
    chain(self, copy, step, 0);
}

static void add_message(builder_t *self, const world_step_t *step,
                        world_site_t *site)
{
    int rank = self->run->rank->rank;
    int known = self->node_count;
    if (step->rank == rank) {
        add_send(self, step, site);
    }
    if (step->peer == rank) {
        add_recv(self, step, site, known);
    }
}

/* take --> reduce --+
                     +-- any --> join
   leave ------------+                  */
static void add_branch(builder_t *self, const world_step_t *step,
                       world_site_t *site)
{
    baton_schedule_t *s = self->schedule;
    const world_program_t *program = self->run->program;
    baton_view_t target = view_of(self, step->target, step);
    baton_node_t take = baton_add_call(s, take_branch, site);
    baton_node_t leave = baton_add_call(s, leave_branch, site);
    baton_node_t sum =
        baton_add_reduce(s, program->dtype, world_op(program), target, target,
                         view_of(self, step->left, step));
    baton_node_t join = baton_add_nop(s);
    baton_set_optional(s, sum);
    baton_before(s, take, sum);
    baton_before(s, sum, join);
    baton_before(s, leave, join);
    baton_set_need(s, join, BATON_NEED_ANY);
    self->nodes[self->node_count++] = join;
}

static void add_join(builder_t *self, const world_step_t *step)
{
    enum { MOST = 4 };
    baton_node_t join = baton_add_nop(self->schedule);
    fuzz_random_t random = {step->chance};
    uint32_t edges = 0;
    for (int i = 0; i < self->node_count && edges < MOST; i++) {
        if (fuzz_once_in(&random, 3)) {
            baton_before(self->schedule, self->nodes[i], join);
            edges++;
        }
    }
    if (edges > 0) {
        baton_set_need(self->schedule, join,
                       1 + (uint32_t)fuzz_below(&random, edges));
    }
    self->nodes[self->node_count++] = join;
}

static void add_step(builder_t *self, const world_step_t *step,
                     world_site_t *site)
{
    bool own = step->rank == self->run->rank->rank;
    int known = self->node_count;
    site->run = self->run;
    site->step = step;
    if (step->kind == STEP_MESSAGE || step->kind == STEP_LENGTH) {
        add_message(self, step, site);
    } else if (own && step->kind == STEP_BRANCH) {
        add_branch(self, step, site);
    } else if (own && step->kind == STEP_JOIN) {
        add_join(self, step);
    } else if (own && step->kind == STEP_START) {
        self->nodes[self->node_count++] = baton_add_on_start(self->schedule);
    } else if (own) {
        chain(self, add_local(self, step, site), step, known);
    }
}

/* Rank 0:  on_start --> activate each       others:  armed --+
                                                              +-- any --> ..
                                                      start --+            */
static void add_activation(builder_t *self)
{
    baton_schedule_t *s = self->schedule;
    baton_node_t start = baton_add_on_start(s);
    if (self->run->rank->rank == 0) {
        for (int rank = 1; rank < self->run->program->ranks; rank++) {
            baton_before(s, start, baton_add_activate(s, rank));
        }
        return;
    }
    baton_node_t any = baton_add_nop(s);
    baton_before(s, baton_add_armed_recv(s, 0), any);
    baton_before(s, start, any);
    baton_set_need(s, any, BATON_NEED_ANY);
    self->nodes[self->node_count++] = any;
}

static void add_buffers(builder_t *self)
{
    world_run_t *run = self->run;
    size_t bytes = world_slot_bytes(run->program);
    for (int i = 0; i < WORLD_ALL_SLOTS; i++) {
        const world_slot_t *slot = &run->program->slots[run->rank->rank][i];
        if (!slot->used) {
            continue;
        }
        run->buffers[i] =
            slot->scratch ? baton_buffer_scratch(self->schedule, bytes)
            : slot->input
                ? baton_buffer_bind_input(self->schedule, run->memory[i], bytes)
                : baton_buffer_bind(self->schedule, run->memory[i], bytes);
        if (slot->place != PLACE_ANY) {
            baton_buffer_set_memory(self->schedule, run->buffers[i],
                                    slot->place == PLACE_DEVICE
                                        ? BATON_MEMORY_DEVICE
                                        : BATON_MEMORY_HOST);
        }
    }
}

void world_build(world_run_t *run)
{
    const world_program_t *program = run->program;
    builder_t self = {.schedule = run->schedule, .run = run};
    for (int slot = 0; slot < WORLD_ALL_SLOTS; slot++) {
        for (int part = 0; part < WORLD_PARTS; part++) {
            self.accesses[slot][part].writer = NONE;
        }
    }
    add_buffers(&self);
    if (program->activates) {
        add_activation(&self);
    }
    for (int i = 0; i < program->step_count; i++) {
        add_step(&self, &program->steps[i], &run->sites[i]);
    }
}
