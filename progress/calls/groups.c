/* How groups are created and destroyed. */
#include "progress/calls/calls.h"
#include "progress/driving/engine.h"
#include "progress/epoch/arrivals.h"
#include "progress/epoch/queues.h"
#include "progress/membership/notice.h"
#include "progress/membership/recovery.h"
#include "progress/membership/shrink.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"
#include "base/options.h"
#include "base/random.h"
#include "transport/staged/staged.h"
#include "transport/subset.h"

/* The number of records that a group allocates when it is created: for
   `answers` and for `hellos` (member.h). */
enum { SPARE_RECORDS = 32 };

/* A member, with its transports and the watch of its endpoint's descriptors
   (event_loop.h). A simulator's members have neither. */
typedef struct watched_group {
    baton__member_t member;
    baton__watch_t *watch;
    baton_transport_t callers_transport; /* a copy of the caller's table */
    /* The transport in use: the given one, or one around it that can also carry
       messages of device memory. */
    baton_transport_t transport;
    char unknown_name[BATON__UNKNOWN_BYTES];
} watched_group_t;

static void link_group(baton_group_t *group)
{
    baton_engine_t *engine = group->engine;
    const baton_transport_t *transport = group->transport;
    baton_group_t *root = group->root;
    engine->driver->enter(engine);
    baton_group_t **list =
        root != NULL ? &root->subsets : &engine->stepper.groups;
    group->next = *list;
    *list = group;
    if (root != NULL) {
        baton__table_enter(&root->channels, group->channel)->group = group;
        if (baton__member_of(group)->parent != NULL) {
            baton__member_of(group)->parent->children++;
        }
        baton__step_adopt(group);
    } else if (transport->host_processors > 0 &&
               transport->host_ranks > transport->host_processors) {
        baton__idle_share(&engine->idle);
    }
    engine->driver->leave(engine);
}

static void unlink_group(baton_group_t *group)
{
    assert(baton__driven_here(group));
    baton_engine_t *engine = group->engine;
    baton_group_t *root = group->root;
    baton_group_t **link =
        root != NULL ? &root->subsets : &engine->stepper.groups;
    while (*link != group) {
        link = &(*link)->next;
    }
    *link = group->next;
    if (root != NULL) {
        baton__table_remove(&root->channels, group->channel);
    }
    baton__queues_forget(group, NULL);
}

static void free_group(watched_group_t *watched)
{
    baton__member_t *member = &watched->member;
    baton__member_fini(member);
    if (member->group.root == NULL) {
        baton__free(member->group.parts);
    }
    baton__free(member->queues);
    baton__free(member->neighbours);
    member->group.retired = true;
    baton__free_later(watched);
}

static baton_status_t read_transport(const baton_transport_t *from,
                                     baton_transport_t *out)
{
    baton_status_t status = baton__options_read(
        out, sizeof *out, from, "group: transport", "BATON_TRANSPORT");
    if (status != BATON_OK) {
        return status;
    }
    if (out->reserve == NULL || out->send == NULL || out->notify == NULL ||
        out->withdraw == NULL || out->poll == NULL || out->accept == NULL ||
        out->drop == NULL || out->descriptor == NULL || out->drain == NULL ||
        out->arm == NULL || out->disarm == NULL || out->close == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "group: a function of transport \"%s\" is NULL",
                            out->name != NULL ? out->name : "?");
    }
    bool half = (out->allocate == NULL) != (out->release == NULL);
    if (half ||
        (out->post_receive == NULL) != (out->withdraw_receive == NULL)) {
        return baton__error(BATON_ERR_INVALID,
                            "group: transport \"%s\" has only one of %s",
                            out->name != NULL ? out->name : "?",
                            half ? "allocate and release"
                                 : "post_receive and withdraw_receive");
    }
    return BATON_OK;
}

/* enclose chooses the transport that the group uses. With a device, it puts
   another transport around the given one: this transport copies messages of
   device memory through main memory. disclose undoes that, so that the given
   endpoint is the caller's again. */
static baton_status_t enclose(watched_group_t *watched)
{
    baton_group_t *group = &watched->member.group;
    const baton__device_t *device = group->device;
    const baton_transport_t *around = &watched->callers_transport;
    baton_status_t status = BATON_OK;
    if (device != NULL && group->root == NULL) {
        status =
            baton__staged_open(&watched->callers_transport, group->endpoint,
                               group->rank, group->size, &device->port,
                               device->device, &around, &group->endpoint);
    }
    watched->transport = *around;
    return status;
}

static void disclose(const watched_group_t *watched)
{
    const baton_group_t *group = &watched->member.group;
    if (group->device != NULL && group->root == NULL) {
        baton__staged_undo(group->endpoint);
    }
}

static bool reserve_notices(baton__member_t *member)
{
    for (int i = 0; i < SPARE_RECORDS; i++) {
        baton__notice_t *record = baton__alloc(1, sizeof *record);
        if (record == NULL) {
            return false;
        }
        baton__member_give_notice(member, record);
    }
    return baton__table_reserve(&member->hellos, SPARE_RECORDS);
}

/* Allocates the memory that a group needs to run. A subset shares the buffer
   for parts of lent messages (group->parts) with its root. It also reserves no
   records for notices, and allocates them when notices come. */
static baton_status_t groups_reserve(baton_group_t *group)
{
    baton__member_t *member = baton__member_of(group);
    bool reads = group->transport->read != NULL;
    if (group->root != NULL) {
        group->parts = group->root->parts;
    } else if (reads) {
        group->parts = baton__alloc(BATON__OPERANDS, BATON__PART_BYTES);
    }
    member->queues = baton__alloc((size_t)group->size, sizeof *member->queues);
    return member->queues != NULL && (group->parts != NULL || !reads) &&
                   (group->root != NULL || reserve_notices(member)) &&
                   baton__arrivals_meet(group)
               ? BATON_OK
               : baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
}

/* Gives the group what it needs to run, adds it to its engine, and makes its
   verifier. */
static baton_status_t groups_open(watched_group_t *watched)
{
    baton_group_t *group = &watched->member.group;
    baton_engine_t *engine = group->engine;
    const baton__watched_t descriptors = {.name = watched->transport.name,
                                          .object = group->endpoint,
                                          .descriptor =
                                              watched->transport.descriptor,
                                          .drain = watched->transport.drain};
    baton_status_t status = groups_reserve(group);
    if (status == BATON_OK && group->root == NULL) {
        status = baton__event_loop_watch(engine->event_loop, &descriptors,
                                         &watched->watch);
    }
    if (status != BATON_OK) {
        return status;
    }
    link_group(group);
    if (engine->verification != NULL &&
        (watched->transport.verify ||
         baton__config_number(BATON__CONFIG_VERIFY) != 0)) {
        status = engine->verification->create(group, &watched->member.verifier);
    }
    if (status != BATON_OK) {
        engine->driver->enter(engine);
        unlink_group(group);
        engine->driver->leave(engine);
    }
    return status;
}

/* Creates a group. `model` has its engine, its endpoint, its rank and its size.
   In a group that is made of another, it also has the root, whose endpoint
   copies the group's messages of device memory through main memory, and a
   channel. `parent` is the member of the group of whose survivors this group
   consists, or NULL. */
static baton_status_t groups_create(const baton_group_t *model,
                                    baton__member_t *parent,
                                    const baton_transport_t *transport,
                                    baton_group_t **out)
{
    watched_group_t *watched = baton__alloc(1, sizeof *watched);
    if (watched == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    }
    watched->member = (baton__member_t){.magic = BATON__MEMBER_MAGIC,
                                        .parent = parent,
                                        .introduces = true,
                                        .unknown_peer = -1,
                                        .unknown_name = watched->unknown_name,
                                        .group = *model};
    baton_group_t *group = &watched->member.group;
    group->stepper = &group->engine->stepper;
    group->kinds = baton__kinds;
    group->device = group->engine->device;
    group->transport = &watched->transport;
    baton_status_t status =
        read_transport(transport, &watched->callers_transport);
    if (status == BATON_OK) {
        status = enclose(watched);
    }
    if (status != BATON_OK) {
        baton__free(watched);
        return status;
    }
    status = groups_open(watched);
    if (status != BATON_OK) {
        baton__event_loop_unwatch(watched->watch);
        disclose(watched);
        free_group(watched);
        return status;
    }
    *out = group;
    return BATON_OK;
}

baton_status_t baton_group_create(baton_engine_t *engine,
                                  const baton_transport_t *transport,
                                  void *endpoint, int rank, int size,
                                  baton_group_t **out)
{
    if (!baton__is_given(engine, true, __func__, "engine") ||
        !baton__is_given(transport, true, __func__, "transport") ||
        !baton__is_given(out, true, __func__, "out") ||
        !baton__process_is_own(__func__)) {
        return baton__error_status();
    }
    if (size < 1 || rank < 0 || rank >= size) {
        return baton__error(BATON_ERR_INVALID,
                            "group: rank is %d; allowed: 0 to %d", rank,
                            size - 1);
    }
    const baton_group_t model = {
        .engine = engine, .endpoint = endpoint, .rank = rank, .size = size};
    return groups_create(&model, NULL, transport, out);
}

baton_status_t baton__create_subset(baton_group_t *of, uint64_t key,
                                    bool survive, int *ranks, int size,
                                    baton_group_t **out)
{
    baton_engine_t *engine = of->engine;
    baton_group_t *root = of->root != NULL ? of->root : of;
    uint64_t channel = baton__subset_channel(of->channel, key);
    const baton_transport_t *transport = NULL;
    void *endpoint = NULL;
    int rank = 0;
    while (ranks[rank] != of->rank) {
        rank++;
    }
    engine->driver->enter(engine);
    bool reserved = baton__table_reserve(&root->channels, 1);
    bool taken = baton__table_find(&root->channels, channel) != NULL;
    engine->driver->leave(engine);
    if (taken) {
        return baton__error(BATON_ERR_LIMIT,
                            "group: another group has the same hash of its "
                            "name and ranks: choose another name");
    }
    if (!reserved) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    }
    baton_status_t status =
        baton__subset_open(of, channel, ranks, size, &transport, &endpoint);
    if (status != BATON_OK || transport == NULL) {
        return status;
    }
    const baton_group_t model = {.engine = engine,
                                 .endpoint = endpoint,
                                 .root = root,
                                 .collective = baton__group_is_collective(root),
                                 .channel = channel,
                                 .rank = rank,
                                 .size = size};
    status = groups_create(&model, survive ? baton__member_of(of) : NULL,
                           transport, out);
    if (status != BATON_OK) {
        transport->close(endpoint);
        return status;
    }
    (*out)->origins = ranks;
    return BATON_OK;
}

/* Copies a list of ranks. Returns an error unless these are different ranks of
   the parent, and this rank is among them. */
static baton_status_t read_ranks(const baton_group_t *parent, const int *ranks,
                                 int size, int **out)
{
    int *copy = baton__alloc((size_t)size, sizeof *copy);
    char *seen = baton__alloc((size_t)parent->size, 1);
    baton_status_t status =
        copy != NULL && seen != NULL
            ? BATON_OK
            : baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    for (int i = 0; copy != NULL && seen != NULL && i < size; i++) {
        int rank = copy[i] = ranks[i];
        bool known = rank >= 0 && rank < parent->size;
        if (!known || seen[rank] != 0) {
            status = baton__error(
                BATON_ERR_INVALID, "baton_group_create_sub: ranks: %d %s", rank,
                known ? "is listed twice" : "is not a rank of the parent");
            break;
        }
        seen[rank] = 1;
    }
    if (status == BATON_OK && seen != NULL && seen[parent->rank] == 0) {
        status = baton__error(BATON_ERR_INVALID,
                              "baton_group_create_sub: ranks must contain rank "
                              "%d, which has called this function; a rank that "
                              "is not in the new group must not call it",
                              parent->rank);
    }
    baton__free(seen);
    if (status != BATON_OK) {
        baton__free(copy);
        return status;
    }
    *out = copy;
    return BATON_OK;
}

static baton_status_t check_sub(const baton_group_t *parent, const int *ranks,
                                int size, const char *name, baton_group_t **out)
{
    static const char function[] = "baton_group_create_sub";
    if (!baton__is_given(parent, true, function, "parent") ||
        !baton__is_given(ranks, true, function, "ranks") ||
        !baton__is_given(name, true, function, "name") ||
        !baton__is_given(out, true, function, "out") ||
        !baton__is_group(parent, function)) {
        return baton__error_status();
    }
    if (parent->borrowed) {
        return baton__error(BATON_ERR_UNSUPPORTED,
                            "baton_group_create_sub: it is not supported for a "
                            "group of the simulator");
    }
    return size >= 1 && size <= parent->size
               ? BATON_OK
               : baton__error(
                     BATON_ERR_INVALID,
                     "baton_group_create_sub: size is %d, must be 1 to %d",
                     size, parent->size);
}

baton_status_t baton_group_create_sub(baton_group_t *parent, const int *ranks,
                                      int size, const char *name,
                                      baton_group_t **out)
{
    int *copy = NULL;
    baton_status_t status = check_sub(parent, ranks, size, name, out);
    if (status == BATON_OK) {
        status = read_ranks(parent, ranks, size, &copy);
    }
    if (status != BATON_OK || copy == NULL) {
        return status;
    }
    /* All ranks of the new group compute the same channel: from the ranks, the
       name, and how many groups of these ranks and this name they have made. */
    uint64_t key = (uint64_t)size;
    for (int i = 0; i < size; i++) {
        key = baton__mix(key + (uint64_t)copy[i]);
    }
    for (const char *at = name; *at != '\0'; at++) {
        key = baton__mix(key * 257 + (unsigned char)*at);
    }
    baton_engine_t *engine = parent->engine;
    engine->driver->enter(engine);
    uint32_t *count = baton__group_counter(parent, NULL, key);
    uint32_t nth = count != NULL ? ++*count : 0;
    engine->driver->leave(engine);
    bool named = *name != '\0';
    char *own_name = named ? baton__copy_string(name) : NULL;
    status = nth == 0 || (named && own_name == NULL)
                 ? baton__error(BATON_ERR_NO_MEMORY, "no memory for a group")
                 : baton__create_subset(parent, baton__mix(key) + nth, false,
                                        copy, size, out);
    if (status == BATON_OK) {
        engine->driver->enter(engine);
        (*out)->name = own_name;
        engine->driver->leave(engine);
    } else {
        baton__free(copy);
        baton__free(own_name);
        if (nth != 0) {
            engine->driver->enter(engine);
            --*baton__group_counter(parent, NULL, key);
            engine->driver->leave(engine);
        }
    }
    return status;
}

/* Returns the first task in a list that belongs to the group and was created by
   the application, not by the verifier; NULL if there is none. */
static const baton__task_t *find_task(const baton__task_t *first,
                                      const baton_group_t *group)
{
    while (first != NULL &&
           (first->schedule.group != group || first->verifies)) {
        first = first->next;
    }
    return first;
}

/* Returns BATON_ERR_BUSY if schedules of the group exist, or blocks that were
   allocated and not freed. */
static baton_status_t check_empty(const baton_group_t *group)
{
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    uint32_t schedules = group->schedules;
    const baton__task_t *left = find_task(engine->stepper.tasks, group);
    if (left == NULL) {
        left = find_task(engine->stepper.uncommitted, group);
    }
    uint32_t blocks = 0;
    for (const baton__memory_t *m = group->memory; m != NULL; m = m->next) {
        blocks++;
    }
    engine->driver->leave(engine);
    if (schedules == 0 && blocks > 0) {
        return baton__error(BATON_ERR_BUSY,
                            "group (%s, %s): %u blocks of "
                            "baton_memory_alloc still exist: free them first",
                            baton__group_place(group), group->transport->name,
                            blocks);
    }
    return schedules == 0
               ? BATON_OK
               : baton__error(BATON_ERR_BUSY,
                              "group (%s, %s): %u of its schedules "
                              "still exist, \"%s\" for one: destroy them first",
                              baton__group_place(group), group->transport->name,
                              schedules,
                              left != NULL ? left->schedule.name : "?");
}

/* Begins the farewell from the peers (recovery.h), which later steps of the
   driver complete. Withdraws the group's notices and gives up its shrink. */
static void begin_to_part(baton_group_t *group)
{
    assert(baton__driven_here(group));
    baton__notice_retract(group, 0);
    baton__shrink_give_up(group);
    baton__recovery_part(group);
}

/* Begins a destroyed group's farewell from its peers, unless it still has
   children: groups of survivors that were made of it. While it has children, it
   goes on answering peers that have not made their group of survivors yet. */
static void part_if_childless(baton_group_t *group)
{
    if (group->retired && baton__member_of(group)->children == 0 &&
        group->root != NULL) {
        begin_to_part(group);
    }
}

/* Ends the farewell: no peer of the group is waited for any more. */
static void end_parting(baton_group_t *group)
{
    assert(baton__driven_here(group));
    baton__notice_give_up(group);
    baton__member_of(group)->all_lost = true;
}

static bool has_parted(const baton_group_t *group)
{
    return group->retired && baton__member_of(group)->children == 0 &&
           baton__group_is_recovered(group);
}

/* Closes the endpoint of a group, and frees the group. */
static void close_and_free(baton_group_t *group)
{
    watched_group_t *watched = (watched_group_t *)baton__member_of(group);
    baton__event_loop_unwatch(watched->watch);
    group->transport->close(group->endpoint);
    free_group(watched);
}

/* Frees those subsets of a root group that were destroyed and have exchanged
   farewells with all of their peers. (The subsets share the root's
   endpoint.) */
static void reap(baton_group_t *root)
{
    assert(baton__driven_here(root));
    (void)baton__recovery_advance(root->stepper);
    baton_group_t *group = root->subsets;
    while (group != NULL) {
        baton__member_t *parent = baton__member_of(group)->parent;
        if (!has_parted(group)) {
            group = group->next;
            continue;
        }
        end_parting(group);
        unlink_group(group);
        close_and_free(group);
        if (parent != NULL) {
            parent->children--;
            part_if_childless(&parent->group);
            (void)baton__recovery_advance(root->stepper);
        }
        group = root->subsets;
    }
}

/* True if a group that shares the root's endpoint has not been destroyed. The
   root then goes on answering that group's peers. */
static bool groups_is_shared(const baton_group_t *root)
{
    assert(baton__driven_here(root));
    const baton_group_t *g = root->subsets;
    while (g != NULL && g->retired) {
        g = g->next;
    }
    return g != NULL;
}

baton_status_t baton__group_wait(const baton_group_t *group,
                                 baton_condition_fn condition, int timeout_ms,
                                 bool interruptible)
{
    const baton__wait_t wait = {.condition = condition,
                                .arg = group,
                                .timeout_ms = timeout_ms,
                                .interruptible = interruptible};
    return group->engine->driver->wait(group->engine, &wait);
}

static bool can_reap(const void *arg)
{
    const baton_group_t *root = arg;
    const baton_group_t *g = root->subsets;
    while (g != NULL && !has_parted(g)) {
        g = g->next;
    }
    return g != NULL || root->subsets == NULL;
}

/* Ends the farewell of a root group, and takes the group off its engine. `all`
   says that all ranks have left it. */
static void end_root(baton_group_t *root, bool all)
{
    if (root->transport->lose != NULL && baton__group_is_collective(root) &&
        (!all || baton__member_has_lost(baton__member_of(root)))) {
        root->transport->lose(root->endpoint, root->rank, BATON_ERR_TRANSPORT,
                              NULL);
    }
    end_parting(root);
    (void)baton__recovery_advance(root->stepper);
    unlink_group(root);
}

/* Advances the root groups that part in the background, and frees those that
   have parted. */
static void reap_roots(baton__stepper_t *stepper)
{
    baton_group_t *next = stepper->groups;
    stepper->reap = NULL;
    while (next != NULL) {
        baton_group_t *root = next;
        const baton__member_t *member = baton__member_of(root);
        next = root->next;
        if (!member->unattended) {
            continue;
        }
        reap(root);
        if (root->subsets == NULL && !member->parts) {
            begin_to_part(root);
            (void)baton__recovery_advance(stepper);
        }
        if (member->parts && baton__group_is_recovered(root)) {
            end_root(root, true);
            close_and_free(root);
        } else {
            stepper->reap = reap_roots;
        }
    }
}

/* True if a root group was not destroyed, or groups that share its endpoint
   were not. */
static bool has_open_root(const baton_engine_t *engine)
{
    const baton_group_t *root = engine->stepper.groups;
    while (root != NULL && root->retired && !groups_is_shared(root)) {
        root = root->next;
    }
    return root != NULL;
}

/* If no root group is open any more, takes one of those that part in the
   background, which the caller closes. Returns NULL if there is none. */
static baton_group_t *take_unattended(baton_engine_t *engine)
{
    engine->driver->enter(engine);
    reap_roots(&engine->stepper);
    baton_group_t *root = has_open_root(engine) ? NULL : engine->stepper.groups;
    while (root != NULL && !baton__member_of(root)->unattended) {
        root = root->next;
    }
    if (root != NULL) {
        baton__member_of(root)->unattended = false;
        baton__recovery_rouse(root);
    }
    engine->driver->leave(engine);
    return root;
}

/* Closes a destroyed root group. First waits until all groups that share its
   endpoint have exchanged farewells with their peers, and frees these groups.
   Then the root itself exchanges farewells, and is freed. */
static void close_root(baton_group_t *root, uint64_t until_ns)
{
    baton_engine_t *engine = root->engine;
    bool waits = true;
    while (root->subsets != NULL) {
        waits =
            waits && baton__group_wait(root, can_reap, baton__left_ms(until_ns),
                                       false) == BATON_OK;
        engine->driver->enter(engine);
        for (baton_group_t *g = root->subsets; g != NULL && !waits;
             g = g->next) {
            baton__recovery_rouse(g);
            end_parting(g);
        }
        reap(root);
        engine->driver->leave(engine);
    }
    engine->driver->enter(engine);
    if (!baton__member_of(root)->parts) {
        begin_to_part(root);
    }
    engine->driver->leave(engine);
    waits = baton__group_wait(root, baton__group_is_recovered,
                              waits ? baton__left_ms(until_ns) : 0,
                              false) == BATON_OK &&
            waits;
    engine->driver->enter(engine);
    end_root(root, waits);
    engine->driver->leave(engine);
    close_and_free(root);
}

/* Closes a destroyed group. A group that shares its root's endpoint parts in
   the background. If no other group shares that endpoint any more, and the root
   was destroyed before, this closes the root, too.

   While another root group is open, the root parts in the background, too, if
   there is a progress thread to answer its peers: a peer may destroy that other
   group first, and wait for this rank there. The rank waits for all of them
   when it destroys its last root group. */
static void close_group(baton_group_t *group)
{
    baton_engine_t *engine = group->engine;
    baton_group_t *root = group->root != NULL ? group->root : group;
    const uint64_t until_ns =
        baton__deadline((int)baton__config_number(BATON__CONFIG_DESTROY_MS));
    engine->driver->enter(engine);
    group->retired = true;
    part_if_childless(group);
    reap(root);
    bool last = root->retired && !groups_is_shared(root);
    bool waits = !engine->threaded || !baton__group_is_collective(root) ||
                 !has_open_root(engine);
    if (last) {
        baton__member_of(root)->unattended = !waits;
    }
    reap_roots(&engine->stepper);
    engine->driver->leave(engine);
    for (root = last && waits ? root : NULL; root != NULL;
         root = take_unattended(engine)) {
        close_root(root, until_ns);
    }
}

baton_status_t baton_group_destroy(baton_group_t *group)
{
    if (group == NULL) {
        return BATON_OK;
    }
    if (!baton__is_group(group, __func__)) {
        return baton__error_status();
    }
    if (group->borrowed) {
        return baton__error(
            BATON_ERR_STATE,
            "group (%s, %s): it belongs to a simulator: call baton_sim_destroy",
            baton__group_place(group), group->transport->name);
    }
    if (baton__engine_is_inside(group->engine)) {
        return baton__error(BATON_ERR_STATE,
                            "group (%s, %s): a call node can't "
                            "destroy it",
                            baton__group_place(group), group->transport->name);
    }
    baton__group_drop_attributes(group);
    baton_status_t status = check_empty(group);
    if (status != BATON_OK) {
        return status;
    }
    baton__member_t *member = baton__member_of(group);
    if (member->verifier != NULL) {
        group->engine->verification->destroy(member->verifier);
        member->verifier = NULL;
    }
    close_group(group);
    return BATON_OK;
}
