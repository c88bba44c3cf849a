/* The rules of partial all-reduces. */
#ifndef TESTS_FUZZ_PARTIAL_H
#define TESTS_FUZZ_PARTIAL_H

#include "fuzz/cluster.h"

extern const fuzz_rules_t fuzz_partial_rules;

#endif
