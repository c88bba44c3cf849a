/* What must be the same on all ranks of a schedule and shows in no message: the
   terms, which builders state one behind the other. All of them are hashed but
   remarks, which begin with a parenthesis; of the text, by which a difference
   is named, the first TEXT_MOST bytes are kept. A notice of a peer has a part
   of its terms. Each term ends with ", ". Without payload there is nothing to
   compare. */
#include "sched/schedule.h"

#include "base/random.h"

#include <string.h>

enum { TERM_BYTES = 256, TEXT_MOST = 65536, BEHIND_MOST = 80 };

void baton_schedule_agree(baton_schedule_t *schedule, const char *format, ...)
{
    char term[TERM_BYTES];
    if (!baton__graph_open(schedule, __func__) || schedule->group->cost_only) {
        return;
    }
    baton__text_t text = {term, sizeof term - 2, 0};
    va_list args;
    va_start(args, format);
    baton__text_add_list(&text, format, args);
    va_end(args);
    memcpy(term + text.used, ", ", 3);
    if (term[0] != '(') {
        schedule->terms_hash = baton__mix(baton__mix(schedule->terms_hash + 1) ^
                                          baton__identity(term, 1));
    }
    size_t used = schedule->terms == NULL ? 0 : strlen(schedule->terms);
    size_t length = used + strlen(term);
    if (length < TEXT_MOST &&
        baton__graph_grow(schedule, &schedule->terms, (uint32_t)used,
                          (uint32_t)length + 1, 1)) {
        memcpy(schedule->terms + used, term, strlen(term) + 1);
    }
}

/* Where the first term begins that differs. */
static size_t find_difference(const char *terms, const char *others)
{
    size_t same = 0;
    for (size_t i = 0; terms[i] != '\0' && terms[i] == others[i]; i++) {
        same = terms[i] == ' ' && terms[i - 1] == ',' ? i + 1 : same;
    }
    return same;
}

static const char *terms_from(const baton_schedule_t *schedule, size_t from)
{
    const char *terms = schedule->terms != NULL ? schedule->terms : "";
    return from <= strlen(terms) ? terms + from : "";
}

size_t baton__terms_next(const baton_schedule_t *schedule, const char *others,
                         size_t from, bool is_cut)
{
    size_t same = find_difference(terms_from(schedule, from), others);
    bool whole = strstr(others + same, ", ") != NULL;
    return is_cut && !whole && same > 0 ? from + same : 0;
}

/* Of the remark that these terms begin with, if they do. */
static size_t remark_length(const char *terms)
{
    const char *end = terms[0] == '(' ? strstr(terms, ", ") : NULL;
    return end != NULL ? (size_t)(end - terms) + 2 : 0;
}

/* The first of these terms; those of a peer may be cut, and the last one then
   lacks its end. */
static void add_term(baton__text_t *text, int rank, const char *terms)
{
    int length = (int)strcspn(terms, ",");
    const char *term = terms[0] == '\0'       ? "nothing"
                       : terms[length] == ',' ? terms
                                              : "something else";
    baton__text_add(text, "rank %d has %.*s", rank,
                    term == terms ? length : (int)strlen(term), term);
}

void baton__terms_compare(baton__text_t *text, const baton_schedule_t *schedule,
                          const char *others, size_t from, int other_rank)
{
    others = others != NULL ? others : "";
    const char *terms = terms_from(schedule, from);
    if (from == 0 && (terms[0] == '(') != (others[0] == '(')) {
        from = remark_length(terms);
        others += remark_length(others);
        terms += from;
    }
    const size_t same = find_difference(terms, others);
    add_term(text, schedule->group->rank, terms + same);
    baton__text_add(text, " where ");
    add_term(text, other_rank, others + same);
    size_t before = terms[0] != '\0' ? from + same : 0;
    if (before > 0) {
        size_t begin = before > BEHIND_MOST ? before - BEHIND_MOST : 0;
        baton__text_add(text, " (both have \"%s%.*s\" before it)",
                        begin > 0 ? "..." : "", (int)(before - begin - 2),
                        schedule->terms + begin);
    }
    baton__text_add(text, "; must be the same on all ranks");
}
