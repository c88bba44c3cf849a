/* baton_engine_open: an engine whose groups verify by simulation. */
#include "progress/engine.h"
#include "sim/verify.h"

baton_status_t baton_engine_open(const baton_engine_options_t *options,
                                 baton_engine_t **out)
{
    return baton__engine_open(options, &baton__verification, out);
}
