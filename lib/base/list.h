/* Singly linked lists, first in, first out, of records that have a field `next`
   and are in one list at a time. */
#pragma once

#include <stddef.h>

/* Declares the list type NAME_t and its functions. A list of zeros is empty;
   `tail` is valid only while `head` is not NULL. NAME_take removes and returns
   the first record, or returns NULL. NAME_remove removes a record, which need
   not be in the list. */
#define BATON__LIST(name, record_t)                                            \
    typedef struct name {                                                      \
        record_t *head, *tail;                                                 \
    } name##_t;                                                                \
                                                                               \
    static inline void name##_append(name##_t *list, record_t *record)         \
    {                                                                          \
        record->next = NULL;                                                   \
        *(list->head == NULL ? &list->head : &list->tail->next) = record;      \
        list->tail = record;                                                   \
    }                                                                          \
                                                                               \
    static inline record_t *name##_take(name##_t *list)                        \
    {                                                                          \
        record_t *first = list->head;                                          \
        if (first != NULL) {                                                   \
            list->head = first->next;                                          \
        }                                                                      \
        return first;                                                          \
    }                                                                          \
                                                                               \
    /* Some files don't use remove. */                                         \
    __attribute__((unused)) static inline void name##_remove(                  \
        name##_t *list, const record_t *record)                                \
    {                                                                          \
        record_t *before = NULL;                                               \
        record_t *at = list->head;                                             \
        while (at != NULL && at != record) {                                   \
            before = at;                                                       \
            at = at->next;                                                     \
        }                                                                      \
        if (at != NULL) {                                                      \
            *(before == NULL ? &list->head : &before->next) = at->next;        \
            list->tail = list->tail == at ? before : list->tail;               \
        }                                                                      \
    }
