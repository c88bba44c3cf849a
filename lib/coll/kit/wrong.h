/* An error in a caller's options. The function that finds it stores it, and
   another one reports it: in a sparse all-reduce only after the ranks have
   compared their options, so that all ranks fail. */
#pragma once

#include <baton/build.h>

/* The reason why this rank can't take part. If its status is
   BATON_ERR_MISMATCH, all ranks have this error. Any other error may be this
   rank's alone. */
typedef struct baton__wrong {
    baton_status_t status;
    char text[320];
} baton__wrong_t;

/* Stores an error and returns false. */
bool baton__refuse(baton__wrong_t *wrong, baton_status_t status,
                   const char *format, ...) BATON_PRINTF(3, 4);

/* Stores `status` and this thread's error message, unless an error is stored
   already or `status` is BATON_OK. */
void baton__wrong_keep(baton__wrong_t *wrong, baton_status_t status);

/* Returns BATON_OK if no error is stored. Otherwise sets this thread's error,
   whose message names the object by its kind and name, and returns the status
   that is stored. */
baton_status_t baton__wrong_error(const baton__wrong_t *wrong, const char *kind,
                                  const char *name);
