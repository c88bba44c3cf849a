/* The loss of a rank. The transport reports it, or another rank does. Then the
   epochs that need the rank fail, recoveries end, and ranks that would not
   notice the loss themselves are told of it. */
#pragma once

#include "progress/state/stepper.h"

/* Called when a rank of the group is lost. Fails epochs that wait for that
   rank, and ends recoveries, since that rank won't join them. If the group is a
   root, does the same in its subsets. */
void baton__loss_take(baton_group_t *group, int peer, const char *detail);

/* Handles the transport's event that a rank is lost: to this rank alone, or to
   all ranks. */
void baton__loss_happen(baton_group_t *group, const baton_event_t *event);

/* Handles a LEFT notice. Its sender leaves the group, or only reports a loss.
   The reported loss is handled first, so that errors name the lost rank. If the
   sender leaves, its notice is kept until the transport has reported the loss.
   For the transport first delivers the messages of the lost rank, which may be
   all that an epoch waits for. Reports from a rank that is itself lost are
   ignored: that rank may have been stopped, and be excluded by the others. */
void baton__loss_receive(baton_group_t *group, const baton_header_t *header,
                         int peer);
