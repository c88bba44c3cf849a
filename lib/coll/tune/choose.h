/* From the table of algorithms to a builder. */
#ifndef BATON_COLL_TUNE_CHOOSE_H
#define BATON_COLL_TUNE_CHOOSE_H

#include <baton/tuning.h>

/* Calls a builder of the table with its struct. */
typedef void (*baton__build_fn)(baton_schedule_t *schedule, const void *args);

/* The builder of an algorithm that is in the table. */
baton__build_fn baton__algorithm_builder(const baton_algorithm_t *algorithm);

/* BATON_ERR_INVALID names a value that is no collective, and those that are;
   `what` begins the sentence. */
baton_status_t baton__check_collective(const char *what,
                                       baton_collective_t collective);

#endif
