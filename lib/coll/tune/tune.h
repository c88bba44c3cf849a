/* Choices that were measured: lists of them, their lines in a calibration file,
   and the tables of groups.

       choice allreduce 16384 4 1 out pairwise 0

   A line has the collective; the size class, which is 4^k bytes; ranks and
   hosts; whether an all-reduce is in or out of place; the algorithm, and the
   bytes of its segments (0 where it has none). Where ranks are on one host or
   several is in the key, the memory of the vectors is not: whether a rank's
   memory is shared is for that rank alone to know, and a choice must be the
   same on all. */
#pragma once

#include <baton/tuning.h>

typedef struct baton__measured {
    baton_collective_t collective;
    size_t class_bytes; /* 4^k */
    int ranks;
    int hosts;
    bool in_place;
    const char *algorithm; /* static */
    size_t segment_bytes;
    struct baton__measured *next;
} baton__measured_t;

/* The class of a vector: 4^k bytes for those from half of that to less than
   twice; and the key of a case. */
size_t baton__measured_class(size_t bytes);
baton__measured_t baton__measured_key(const baton_choice_case_t *of);

/* Lists, of which NULL is an empty one. find: the latest one of this key, or
   NULL. add: copies one in front of the others; BATON_ERR_NO_MEMORY. free:
   leaves an empty list. */
const baton__measured_t *baton__measured_find(const baton__measured_t *list,
                                              const baton__measured_t *key);
baton_status_t baton__measured_add(baton__measured_t **list,
                                   const baton__measured_t *one);
void baton__measured_free(baton__measured_t **list);

/* Adds the choices of a list to the end of a calibration file.
   BATON_ERR_SYSTEM. */
baton_status_t baton__measured_append(const char *path,
                                      const baton__measured_t *list);

/* What the calibration file in force has of this key, if anything.
   BATON_ERR_SYSTEM, _NO_MEMORY; BATON_ERR_INVALID names a line that is wrong.
 */
baton_status_t baton__measured_in_file(const baton__measured_t *key,
                                       baton__measured_t *out, bool *found_out);

/* ---- choices ------------------------------------------------------------ */

/* The name that a case or a variable gives; "" if there is none. */
const char *baton__choice_name(const baton_choice_case_t *of);

/* The variable that names an algorithm of a collective with several. */
const char *baton__choice_variable(baton_collective_t collective);

/* The model's cheapest choices for a valid case, at most `most`, the best
   first. */
baton_status_t baton__choice_rank(const baton_choice_case_t *of, size_t most,
                                  baton_choice_t *out, size_t *count_out);

/* Sets *out to what was measured, if that can do what a valid case asks for. */
baton_status_t baton__choice_take(const baton__measured_t *measured,
                                  const baton_choice_case_t *of,
                                  baton_choice_t *out);

/* As baton_choose, with what this group has measured; and with
   BATON_TUNE=measure it measures now. */
baton_status_t baton__choose_for(baton_group_t *group,
                                 const baton_choice_case_t *of,
                                 baton_choice_t *out);

/* For tests: gets the microseconds that an epoch of an algorithm took on this
   rank, and returns those that count. NULL: as measured. */
extern double (*baton__tune_us)(int rank, const char *algorithm, double us);
