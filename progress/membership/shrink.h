/* How the living ranks of a group agree on which ranks live.

   Each rank sends all others its view: the ranks that it knows to be lost. It
   sends the view again whenever the view has grown, because the transport has
   reported a loss or another rank's view has more lost ranks. A rank that is
   not shrinking the group yet drops views, and asks for them when it begins. A
   rank has agreed when it has sent its view to all ranks that live by this
   view, and has received the same view from all of them.

   From then on its view is fixed. It answers a different view, or a view with
   the bit ASKS (shrink.c), with the agreed view, which the receiver takes over.
   So two living ranks never agree on different views: of two ranks that agree
   by themselves, each has received the other's last view; and once a living
   rank has agreed, no other rank can agree without receiving that rank's view
   once more. A rank that takes over an agreed view sends that view to all
   living ranks, because any of them may wait for an answer to a view that it
   has sent before. A rank takes over no view from a rank that it knows to be
   lost: others may already have agreed, without the lost rank, on a view that
   says so. A rank that finds itself among the lost ranks of another rank's view
   is excluded.

   A view grows at most twice for each rank, when the rank is lost and when its
   end is known, so the exchange ends after the last loss. The exchange uses
   notices alone, and ranks answer until the group is closed.

   A rank is lost because its process has ended, which its host or the end of a
   connection reports; or because it can't be reached. A rank that can't be
   reached may live, and may itself have lost the ranks that count it as lost.
   If a rank was lost by another rank of its own host, all ranks count it as
   ended, because on that host it learns that it is excluded. The excluded rank
   sends no view, since its view would say that the ranks that go on are lost.
   Before a rank agrees on a view, it must itself have lost all ranks of its
   host that are lost in the view. For one of those may have lost this rank
   before, which excludes this rank.

   Of two sides of a partition at most one goes on (with BATON_MINORITY both
   do): the side that has more ranks than it has lost ranks that may live; or,
   if the two numbers are equal, the side with the lowest of all these ranks.
   Only the agreed view is used for this decision, so all ranks of a side decide
   alike. (A rank may not know yet that others have lost it. It is on the side
   of the ranks that it has not lost.) */
#pragma once

#include "progress/state/stepper.h"

typedef enum baton__shrinking {
    BATON__SHRINK_NONE,
    /* The ranks exchange views. */
    BATON__SHRINK_ASKING,
    BATON__SHRINK_AGREED,   /* the survivors' group is not made yet */
    BATON__SHRINK_EXCLUDED, /* other ranks go on without this one; final */
    /* This rank's side of a partition does not go on, and the other side may;
       final. */
    BATON__SHRINK_MINORITY
} baton__shrinking_t;

/* Returns the state of the shrink. Any thread. */
baton__shrinking_t baton__shrink_state(const baton_group_t *group);

/* Begins a shrink if the state is NONE. Returns BATON_ERR_LIMIT for a group
   that is too large to shrink, an error of the transport's function `reserve`,
   or BATON_ERR_NO_MEMORY. */
baton_status_t baton__shrink_begin(baton_group_t *group);

/* Returns the number of the shrink in progress, or else of the next one. The
   first one has the number 1. */
uint64_t baton__shrink_number(const baton_group_t *group);

/* Writes the ranks that live by the agreed view, in order, and returns their
   number. */
int baton__shrink_survivors(const baton_group_t *group, int *ranks_out);

/* Returns the first of the ranks that are lost in the agreed view but may live,
   and stores the number of these ranks. */
int baton__shrink_unreached(const baton_group_t *group, int *count_out);
/* Called when the survivors' group was made. From now on another shrink may
   begin. */
void baton__shrink_end(baton_group_t *group);

/* Returns the first rank, from `from` on, with which this rank has not
   exchanged equal views; -1: there is none. The returned rank does not shrink
   the group yet, or waits for another rank. */
int baton__shrink_awaits(const baton_group_t *group, int from);

/* Advances all groups that shrink: sends the views that are due, and lets this
   rank agree on a view if it can. Returns true if anything happened. */
bool baton__shrink_advance(baton__stepper_t *stepper);

void baton__shrink_receive(baton_group_t *group, baton_message_t *message);

/* Called when the group is destroyed. From now on this rank answers no
   views. */
void baton__shrink_give_up(baton_group_t *group);
