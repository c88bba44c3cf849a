/* What every broadcast that takes a struct begins with. */
#ifndef BATON_COLL_DENSE_BROADCAST_H
#define BATON_COLL_DENSE_BROADCAST_H

#include <baton/coll.h>

/* Checks the arguments. True: there are ranks to send to, and data. */
bool baton__broadcast_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_broadcast_args_t **args);

#endif
