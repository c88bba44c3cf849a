#include "support/device_user.h"
#include "support/cmocka.h"
#include "support/random.h"

user_t user_open_with(int variant, const emulated_options_t *options)
{
    user_t user = {.ranks = device_cluster_open(1, variant, options)};
    user.device = user.ranks->devices[0];
    user.port = emulated_port(user.device);
    user.stream = emulated_stream(user.device);
    user.other = emulated_stream(user.device);
    user.gate = emulated_gate(user.device);
    user.a = emulated_allocate(user.device, USER_BYTES);
    user.b = emulated_allocate(user.device, USER_BYTES);
    return user;
}

user_t user_open(int variant)
{
    const emulated_options_t options = {.seed = support_seed()};
    return user_open_with(variant, &options);
}

void user_close(user_t *user)
{
    emulated_synchronise_all(user->device);
    emulated_free_gate(user->device, user->gate);
    emulated_release(user->device, user->a);
    emulated_release(user->device, user->b);
    device_cluster_close(user->ranks);
}

void user_for_each(void (*fn)(user_t *user))
{
    static const int variants[] = {SUPPORT_OWN_ENGINES, SUPPORT_OWN_MANUAL};
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        user_t user = user_open(variants[v]);
        fn(&user);
        user_close(&user);
    }
}

void user_close_gate(user_t *user)
{
    support_ok(user->port->await(user->device, user->stream, user->gate,
                                 ++user->closed));
}

void user_open_gate(user_t *user)
{
    emulated_open_gate(user->device, user->gate, user->closed);
}

void user_copy(user_t *user, void *target, const void *source)
{
    support_ok(user->port->copy(user->device, user->stream, target, source,
                                USER_BYTES));
}

void user_fill(int32_t *data, int32_t from)
{
    for (int i = 0; i < USER_COUNT; i++) {
        data[i] = from + i;
    }
}

baton_schedule_t *user_double(const user_t *user, baton_schedule_t *schedule)
{
    baton_view_t a = device_view(schedule, user->a, USER_BYTES);
    baton_view_t b = device_view(schedule, user->b, USER_BYTES);
    (void)baton_add_reduce(schedule, BATON_I32, BATON_SUM, b, a, a);
    support_ok(baton_schedule_commit(schedule));
    return schedule;
}
