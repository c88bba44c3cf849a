/* Functions that the notice*.c files share with each other. Each file calls
   only files below it here:

       notice.c           the queues, and in which order their notices are sent
       notice_inquiry.c   INQUIRY, STATE
       notice_hello.c     HELLO, WELCOME
       notice_failure.c   FAILURE, FAILURES; schedules that end, or never begin

   Functions that send a notice return BATON_AGAIN if the transport has no space
   for it. */
#pragma once

#include "progress/membership/notice.h"

/* ---- inquiry ---------------------------------------------------------- */

/* Sends this rank's answer to an INQUIRY with this header. */
baton_status_t baton__state_send(baton_group_t *group, int peer,
                                 const baton_header_t *header);

/* ---- hello ------------------------------------------------------------ */

/* Sends a HELLO or WELCOME with the schedule's terms from number `from` on. */
baton_status_t baton__hello_send(const baton__task_t *task, int peer,
                                 baton__message_kind_t kind, uint32_t from);

/* ---- failure ---------------------------------------------------------- */

/* Sends the peer the schedule's failure, which affects the peer from epoch
   `from` on. */
baton_status_t baton__failure_send(const baton__task_t *task, int peer,
                                   uint64_t from);

/* Sends a FAILURE for a schedule that does not exist on this rank: the recorded
   cause or, without a record, that the schedule or the group has ended here. */
baton_status_t baton__destroyed_send(baton_group_t *group, int peer,
                                     baton_header_t header);

/* Sends one FAILURES notice. It reports the failures at the front of a queue,
   from `first` on, that have the same cause: one rank's recovery. Returns the
   number of these failures; 0 if the transport has no space. */
uint32_t baton__failures_send(const baton__peer_notice_t *first);

/* Forgets the HELLO of a schedule that one peer has sent or, if `peer` is -1,
   those that all peers have sent. If `answers`, tells these peers that this
   rank will never commit the schedule. */
void baton__notice_forget_early(baton_group_t *group, uint64_t identity,
                                int peer, bool answers);

/* Called when a peer's HELLO shows that the peer has joined a recovery that was
   not called on this rank yet. Fails the schedule, because the peer takes no
   part in the present epochs any more. If the peer knew the schedule before, it
   has also sent a FAILURE; otherwise the HELLO is the only sign. */
void baton__failure_peer_ahead(baton_schedule_t *schedule, int peer);

/* Returns a header of this kind for a notice about the schedule. */
static inline baton_header_t baton__notice_header(const baton__task_t *task,
                                                  baton__message_kind_t kind)
{
    return (baton_header_t){.schedule = task->identity,
                            .epoch = task->failing_from,
                            .incarnation = task->schedule.group->incarnation,
                            .kind = (uint16_t)kind};
}
