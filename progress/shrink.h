/* How the ranks of a group that live agree on who they are.

   Each tells each other one who is lost, as far as it knows: its view, and once
   more whenever that has grown, by its transport or by the view of another. A
   rank that is not shrinking the group yet drops views, and asks for them when
   it begins. A rank has agreed when it has told its view to all that live in
   it, and has heard the same one from all of them.

   From then on its view is fixed, and it answers any other one, or a question,
   with what was agreed, which the other one takes over. So two that live never
   agree on different views: of two that agree by themselves each has heard the
   other's last one; and if a rank that lives has agreed nobody else can without
   hearing its view once more. A rank that finds itself in another's view is
   excluded.

   A view grows at most twice for each rank, so this ends when deaths do. It
   uses notices alone, and answers until the group is closed.

   A rank may be lost since its process has ended, which its host or the end of
   a connection tells, or since it can't be reached: then it may live, and think
   the same of those that live here. One that a rank of its own host has lost
   counts as ended: it can be told there that it is left out. So that no two
   sides go on, one does if it has more of the ranks that may live than it can't
   reach; with as many, if it has the lowest of all these. That follows from
   what was agreed, so it is the same on all of a side. (A rank that was lost to
   others, and does not know, would be on two sides: it is on that of those that
   it has not lost.) */
#pragma once

#include "progress/stepper.h"

typedef enum baton__shrinking {
    BATON__SHRINK_NONE,
    BATON__SHRINK_ASKING,
    BATON__SHRINK_AGREED,   /* until the survivors' group is made */
    BATON__SHRINK_EXCLUDED, /* for good */
    BATON__SHRINK_PARTED    /* others may live, and are more; for good */
} baton__shrinking_t;

/* How far it is; any thread. */
baton__shrinking_t baton__shrink_state(const baton_group_t *group);

/* Begins to ask, unless this goes on already, or the survivors' group is still
   to be made. BATON_ERR_LIMIT, _NO_MEMORY. */
baton_status_t baton__shrink_begin(baton_group_t *group);

/* Which of the group's shrinks goes on, or comes next; counted from 1. */
uint64_t baton__shrink_number(const baton_group_t *group);

/* What was agreed: writes the ranks that live, in order, and returns how many.
   end: their group was made. */
int baton__shrink_survivors(const baton_group_t *group, int *ranks_out);

/* Of those that parted: a rank out of reach that may live, and how many. */
int baton__shrink_parted(const baton_group_t *group, int *count_out);
void baton__shrink_end(baton_group_t *group);

/* The first rank from `from` on that has not come, or waits for another; -1 if
   there is none. */
int baton__shrink_awaits(const baton_group_t *group, int from);

/* Sends what is due; true if anything happened. */
bool baton__shrink_advance(baton__stepper_t *stepper);

/* A view has arrived. */
void baton__shrink_receive(baton_group_t *group, baton_message_t *message);

/* The group is being destroyed: answers nobody any more. */
void baton__shrink_give_up(baton_group_t *group);
