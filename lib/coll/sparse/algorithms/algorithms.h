/* The algorithms. Each has a file of its own, and SparDL several (spardl.h).
   regions.c is for those that split the vector into a region for each rank.
   cost.c has their closed forms, and the choice by them. */
#pragma once

#include "coll/sparse/core/core.h"

void baton__spardl_build(baton_sparse_t *sparse);
void baton__spardl_build_on_device(baton_sparse_t *sparse);
void baton__topka_build(baton_sparse_t *sparse);
void baton__topka_build_on_device(baton_sparse_t *sparse);
void baton__topkdsa_build(baton_sparse_t *sparse);
void baton__gtopk_build(baton_sparse_t *sparse);
void baton__oktopk_build(baton_sparse_t *sparse);

typedef struct baton__sparse_place {
    /* `processors` is the number of processors of a host; 0: there is one for
       each rank. */
    int ranks, hosts, processors;
    bool measured; /* the options have no link costs */
} baton__sparse_place_t;
/* Replaces AUTO by the cheapest choice. */
void baton__sparse_take_choice(baton_sparse_options_t *o,
                               const baton__sparse_place_t *place);
