/* Errors in options; see wrong.h. */
#include "coll/kit/wrong.h"

#include "base/error.h"

#include <stdio.h>

bool baton__refuse(baton__wrong_t *wrong, baton_status_t status,
                   const char *format, ...)
{
    baton__text_t text = {wrong->text, sizeof wrong->text, 0};
    wrong->status = status;
    BATON__TEXT_ADD_ARGUMENTS(&text, format);
    return false;
}

void baton__wrong_keep(baton__wrong_t *wrong, baton_status_t status)
{
    if (wrong->status == BATON_OK && status != BATON_OK) {
        wrong->status = status;
        (void)snprintf(wrong->text, sizeof wrong->text, "%s",
                       baton_error_message());
    }
}

baton_status_t baton__wrong_error(const baton__wrong_t *wrong, const char *kind,
                                  const char *name)
{
    return baton__error(wrong->status, "%s \"%s\": %s", kind, name,
                        wrong->text);
}
