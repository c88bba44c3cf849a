/* What is wrong with options, before anybody is told. */
#pragma once

#include <baton/build.h>

/* Why a rank can't take part; of all ranks, if it is BATON_ERR_MISMATCH. */
typedef struct baton__wrong {
    baton_status_t status;
    char text[320];
} baton__wrong_t;

/* For checks: false, with this error. */
bool baton__refuse(baton__wrong_t *wrong, baton_status_t status,
                   const char *format, ...) BATON_PRINTF(3, 4);

/* Keeps the first error, whose message was set. */
void baton__wrong_keep(baton__wrong_t *wrong, baton_status_t status);

/* BATON_OK if nothing is wrong. Else the error, which names the object by its
   kind and name. */
baton_status_t baton__wrong_error(const baton__wrong_t *wrong, const char *kind,
                                  const char *name);
