/* Reports what is wrong with the BATON_* variables in the environment. */
#ifndef BATON_BASE_CONFIG_CHECK_H
#define BATON_BASE_CONFIG_CHECK_H

#include <baton/status.h>

/* BATON_ERR_INVALID names the first variable that is out of its range, with the
   range. The first call also logs that, and a warning for each BATON_* variable
   that is unknown, with the nearest name. Any thread. */
baton_status_t baton__config_check(void);

#endif
