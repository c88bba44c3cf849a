/* Terms: properties that must be the same on all ranks of a schedule but that
   its messages do not show. Builders state the terms one after another.
   Remarks, which begin with a parenthesis, explain the term that follows them;
   they are neither compared nor counted. Each term or remark ends with ", ".
   All terms are hashed, without the remarks. The first TEXT_MOST bytes of the
   text are stored, so that a difference can be named. A notice to a peer has
   space only for a part of the terms. Groups whose messages carry no data
   (cost-only simulations) compare no terms. */
#include "sched/schedule.h"

#include "base/random.h"

#include <string.h>

enum { TERM_BYTES = 256, TEXT_MOST = 65536, BEFORE_MOST = 80 };

/* Adds each term, but no remark, to the schedule's hash of its terms. */
static void add_hash(baton_schedule_t *schedule, char *terms)
{
    for (char *end; (end = strstr(terms, ", ")) != NULL; terms = end + 2) {
        *end = '\0';
        if (terms[0] != '(') {
            schedule->terms_hash =
                baton__mix(baton__mix(schedule->terms_hash + 1) ^
                           baton__identity(terms, 1));
        }
        *end = ',';
    }
}

void baton_schedule_agree(baton_schedule_t *schedule, const char *format, ...)
{
    char term[TERM_BYTES];
    if (!baton__graph_open(schedule, __func__) || schedule->group->cost_only) {
        return;
    }
    baton__text_t text = {term, sizeof term - 2, 0};
    BATON__TEXT_ADD_ARGUMENTS(&text, format);
    memcpy(term + text.used, ", ", 3);
    add_hash(schedule, term);
    size_t used = schedule->terms == NULL ? 0 : strlen(schedule->terms);
    size_t length = used + strlen(term);
    if (length < TEXT_MOST &&
        baton__graph_grow(schedule, &schedule->terms, (uint32_t)used,
                          (uint32_t)length + 1, 1)) {
        memcpy(schedule->terms + used, term, strlen(term) + 1);
    }
}

/* Returns the length of the first term or remark with its ", ". Returns 0 if
   there is none, or if its end is cut off. */
static size_t term_length(const char *terms)
{
    const char *end = strstr(terms, ", ");
    return end != NULL ? (size_t)(end - terms) + 2 : 0;
}

typedef struct side {
    const char *terms;
    const char *remark; /* the last remark before `terms`, or NULL */
    size_t remark_at;   /* the number of the term that follows the remark */
} side_t;

static void skip_remarks(side_t *side, size_t at)
{
    size_t length;
    while (side->terms[0] == '(' && (length = term_length(side->terms)) > 0) {
        side->remark = side->terms;
        side->remark_at = at;
        side->terms += length;
    }
    side->terms = side->terms[0] == '(' ? "" : side->terms;
}

/* Advances the two ranks' texts to the first term in which they differ. Returns
   the number of equal terms before it. */
static size_t find_difference(side_t *ours, side_t *theirs)
{
    for (size_t same = 0;; same++) {
        skip_remarks(ours, same);
        skip_remarks(theirs, same);
        size_t length = term_length(ours->terms);
        if (length == 0 || strncmp(ours->terms, theirs->terms, length) != 0) {
            return same;
        }
        ours->terms += length;
        theirs->terms += length;
    }
}

const char *baton__terms_from(const baton_schedule_t *schedule, size_t from,
                              size_t size)
{
    side_t side = {schedule->terms != NULL ? schedule->terms : "", NULL, 0};
    for (; from > 0; from--) {
        skip_remarks(&side, from);
        side.terms += term_length(side.terms);
    }
    const char *begin = side.terms;
    skip_remarks(&side, from);
    return (size_t)(side.terms - begin) + term_length(side.terms) < size
               ? begin
               : side.terms;
}

size_t baton__terms_next(const baton_schedule_t *schedule, const char *others,
                         size_t from, bool is_cut)
{
    side_t ours = {baton__terms_from(schedule, from, SIZE_MAX), NULL, 0};
    side_t theirs = {others, NULL, 0};
    size_t same = find_difference(&ours, &theirs);
    return is_cut && term_length(theirs.terms) == 0 && same > 0 ? from + same
                                                                : 0;
}

/* Adds the first term of `terms` to the text. If the end of a peer's terms was
   cut off and this term lacks its end, adds "something else" instead. */
static void add_term(baton__text_t *text, int rank, const char *terms)
{
    int length = (int)strcspn(terms, ",");
    if (terms[length] == ',') {
        baton__text_add(text, "rank %d has %.*s", rank, length, terms);
    } else {
        baton__text_add(text, "rank %d has %s", rank,
                        terms[0] == '\0' ? "nothing" : "something else");
    }
}

/* Adds to the text, as help for the reader, up to BEFORE_MOST bytes of the
   terms that come before `end`, without remarks. */
static void terms_add_before(baton__text_t *text, const char *terms,
                             const char *end)
{
    char before[BEFORE_MOST + TERM_BYTES];
    size_t used = 0;
    bool is_cut = false;
    for (size_t length; terms < end; terms += length) {
        length = term_length(terms);
        if (terms[0] != '(') {
            memcpy(before + used, terms, length);
            used += length;
        }
        if (used > BEFORE_MOST) {
            memmove(before, before + used - BEFORE_MOST, BEFORE_MOST);
            used = BEFORE_MOST;
            is_cut = true;
        }
    }
    if (used > 0) {
        baton__text_add(text, " (both have \"%s%.*s\" before it)",
                        is_cut ? "..." : "", (int)used - 2, before);
    }
}

void baton__terms_compare(baton__text_t *text, const baton_schedule_t *schedule,
                          const char *others, size_t from, int other_rank)
{
    const int rank = schedule->group->rank;
    side_t ours = {baton__terms_from(schedule, from, SIZE_MAX), NULL, 0};
    side_t theirs = {others != NULL ? others : "", NULL, 0};
    (void)find_difference(&ours, &theirs);
    add_term(text, rank, ours.terms);
    baton__text_add(text, " where ");
    add_term(text, other_rank, theirs.terms);
    if (ours.terms[0] != '\0') {
        terms_add_before(text, schedule->terms, ours.terms);
    }
    baton__text_add(text, "; must be the same on all ranks");
    if (ours.remark != NULL && theirs.remark != NULL &&
        ours.remark_at == theirs.remark_at &&
        strncmp(ours.remark, theirs.remark, term_length(ours.remark)) != 0) {
        baton__text_add(text, "; rank %d: %.*s, rank %d: %.*s", rank,
                        (int)term_length(ours.remark) - 2, ours.remark,
                        other_rank, (int)term_length(theirs.remark) - 2,
                        theirs.remark);
    }
}
