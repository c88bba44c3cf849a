#include "support/pair.h"
#include "support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void support_pair_open(support_pair_t *pair, support_crew_t *crew,
                       const char *name)
{
    pair->sent = 0;
    pair->got = 0;
    for (int rank = 0; rank < 2; rank++) {
        baton_schedule_t *s;
        support_ok(baton_schedule_create(crew->groups[rank], name, &s));
        baton_view_t view = baton_view(
            baton_buffer_bind(s, rank == 0 ? &pair->got : &pair->sent,
                              sizeof(uint64_t)),
            0, sizeof(uint64_t));
        if (rank == 0) {
            (void)baton_add_recv(s, 1, view);
        } else {
            (void)baton_add_send(s, 0, view);
        }
        support_ok(baton_schedule_commit(s));
        pair->schedules[rank] = s;
    }
}

void support_pair_close(support_pair_t *pair)
{
    support_ok(baton_schedule_destroy(pair->schedules[0]));
    support_ok(baton_schedule_destroy(pair->schedules[1]));
}

void support_pair_send(support_pair_t *pair, uint64_t value)
{
    pair->sent = value;
    support_run(pair->schedules[1]);
}

void support_run(baton_schedule_t *schedule)
{
    support_ok(baton_schedule_start(schedule));
    support_ok(baton_schedule_wait(schedule, SUPPORT_WAIT_MS));
}

void support_says(const char *text)
{
    if (strstr(baton_error_message(), text) == NULL) {
        fail_msg("\"%s\" is not in: %s", text, baton_error_message());
    }
}
