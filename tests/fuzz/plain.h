/* The rules of plain schedules, of whatever kind (kinds.h). */
#ifndef TESTS_FUZZ_PLAIN_H
#define TESTS_FUZZ_PLAIN_H

#include "fuzz/cluster.h"

extern const fuzz_rules_t fuzz_plain_rules;

#endif
