/* Comparing options across ranks; see compare.h. */
#include "coll/kit/compare.h"

#include "base/alloc.h"
#include "base/error.h"

#include <baton/coll.h>
#include <stdio.h>
#include <string.h>

uint64_t baton__compare_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static bool allocate(baton__compare_t *self, const baton__compared_t *list,
                     size_t count, uint64_t wrong)
{
    self->count = count + 1;
    self->list = baton__alloc(self->count, sizeof *self->list);
    self->words = baton__alloc(2 * self->count, sizeof *self->words);
    if (self->list == NULL || self->words == NULL) {
        return false;
    }
    self->list[0] = (baton__compared_t){.name = "wrong", .word = wrong};
    memcpy(self->list + 1, list, count * sizeof *list);
    int rank = baton_schedule_rank(self->schedule);
    for (size_t i = 0; i < self->count; i++) {
        uint64_t word = self->list[i].word;
        self->words[i] = (baton__ranked_t){.word = (int64_t)word, .rank = rank};
        self->words[self->count + i] =
            (baton__ranked_t){.word = (int64_t)~word, .rank = rank};
    }
    return true;
}

baton_status_t baton__compare_start(baton__compare_t *self,
                                    baton_schedule_t *schedule,
                                    const baton__compared_t *list, size_t count,
                                    size_t causes, uint64_t wrong)
{
    *self = (baton__compare_t){.schedule = schedule, .causes = causes};
    if (!allocate(self, list, count, wrong)) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "\"%s\": no memory to compare options",
                            baton_schedule_name(schedule));
    }
    const size_t bytes = 2 * self->count * sizeof *self->words;
    baton_view_t view =
        baton_view(baton_buffer_bind(schedule, self->words, bytes), 0, bytes);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = view,
                                   .target = view,
                                   .dtype = BATON_I64_I32,
                                   .op = BATON_MINLOC};
    baton_add_allreduce_recursive_doubling(schedule, &args);
    baton_status_t status = baton_schedule_commit(schedule);
    return status == BATON_OK ? baton_schedule_start(schedule) : status;
}

static void describe(baton__text_t *text, const baton__compared_t *option,
                     uint64_t word)
{
    double value;
    memcpy(&value, &word, sizeof value);
    if (option->real) {
        baton__text_add(text, "%g", value);
    } else if (option->text != NULL) {
        baton__text_add(text, "%s", option->text(word));
    } else {
        baton__text_add(text, "%llu", (unsigned long long)word);
    }
}

void baton__compare_add(baton__text_t *text, const baton__compared_t *option,
                        uint64_t first, const char *between, uint64_t second,
                        const char *behind)
{
    if (first != second) {
        baton__text_add(text, "%s%s%s%s is ", text->used > 0 ? "; " : "",
                        option->name, option->of != NULL ? " of " : "",
                        option->of != NULL ? option->of : "");
        describe(text, option, first);
        baton__text_add(text, "%s", between);
        describe(text, option, second);
        baton__text_add(text, "%s", behind);
    }
}

uint64_t baton__compare_end(const baton__compare_t *self, baton__text_t *text)
{
    for (size_t i = 1; i < self->count; i++) {
        if (i == 1 + self->causes && text->used > 0) {
            break;
        }
        /* A complement's minimum is that of the largest value. */
        const baton__ranked_t *smallest = &self->words[i];
        const baton__ranked_t *largest = &self->words[self->count + i];
        char between[32], behind[24];
        (void)snprintf(between, sizeof between, " on rank %d and ",
                       (int)smallest->rank);
        (void)snprintf(behind, sizeof behind, " on rank %d",
                       (int)largest->rank);
        baton__compare_add(text, &self->list[i], (uint64_t)smallest->word,
                           between, ~(uint64_t)largest->word, behind);
    }
    return ~(uint64_t)self->words[self->count].word;
}

void baton__compare_fini(baton__compare_t *self)
{
    baton__free(self->list);
    baton__free(self->words);
}
