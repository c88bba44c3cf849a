/* The table of BATON_* variables.

   The environment is read once, under a lock, into static memory: getenv's
   strings do not survive a later setenv. Errors in the environment are stored,
   and config_check.c logs them later, because the log itself depends on
   BATON_LOG. */
#include "base/config.h"

#include "base/text.h"

#include <assert.h>
#include <baton/engine.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX     BATON__CONFIG_PREFIX
#define TEXT_BYTES 256 /* size of the longest value, with its final zero */

typedef enum kind { KIND_NUMBER, KIND_TEXT, KIND_WORD } kind_t;

typedef struct entry {
    /* Without its value. The unit of a word is the list of the allowed words,
       separated by single spaces. */
    baton_variable_t variable;
    kind_t kind;
    int64_t min, max;
} entry_t;

static const entry_t table[BATON__CONFIG_COUNT] = {
#define VARIABLE(id, def, of, text)                                            \
    {                                                                          \
        .name = PREFIX #id, .default_value = def, .unit = of, .summary = text  \
    }
#define TABLE_NUMBER(id, def, least, most, of, text)                           \
    {.variable = VARIABLE(id, #def, of, text),                                 \
     .kind = KIND_NUMBER,                                                      \
     .min = least,                                                             \
     .max = most},
#define TABLE_TEXT(id, def, text)                                              \
    {.variable = VARIABLE(id, def, "", text), .kind = KIND_TEXT},
#define TABLE_WORD(id, def, words, text)                                       \
    {.variable = VARIABLE(id, def, words, text), .kind = KIND_WORD},
    BATON__CONFIG_LIST(TABLE_NUMBER, TABLE_TEXT, TABLE_WORD)};

typedef struct value {
    char text[TEXT_BYTES];
    int64_t number;
} value_t;

static value_t values[BATON__CONFIG_COUNT];
/* the message about the first invalid variable; "" if all are valid */
static char first_error[BATON__MESSAGE_BYTES];

/* `values` and `first_error` are written under the lock, and then `loaded` is
   stored with release. A thread loads it with acquire before it reads the
   two. */
static atomic_bool loaded;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
/* True after a thread has taken on to report errors in the environment
   (baton__config_is_unchecked). */
static atomic_bool checked;

/* Returns the index of `word` in a list separated by spaces; -1 if the list
   does not have it. */
static int64_t word_index(const char *words, const char *word)
{
    size_t length = strlen(word);
    int64_t index = 0;
    for (const char *at = words; *at != '\0' && length > 0; index++) {
        size_t end = strcspn(at, " ");
        if (end == length && strncmp(at, word, length) == 0) {
            return index;
        }
        at += end + (at[end] == ' ');
    }
    return -1;
}

/* Stores `text` as the value of an entry. Returns false if `text` is
   invalid. */
static bool config_parse(const entry_t *entry, const char *text, value_t *out)
{
    int64_t number = 0;
    if (strlen(text) >= TEXT_BYTES) {
        return false;
    }
    if (entry->kind == KIND_NUMBER) {
        char *end = NULL;
        errno = 0;
        number = strtoll(text, &end, 10);
        if (errno != 0 || end == text || *end != '\0' || number < entry->min ||
            number > entry->max) {
            return false;
        }
    } else if (entry->kind == KIND_WORD) {
        number = word_index(entry->variable.unit, text);
        if (number < 0 && text[0] != '\0') {
            return false;
        }
    }
    memcpy(out->text, text, strlen(text) + 1);
    out->number = number;
    return true;
}

static void describe_wrong(const entry_t *entry, const char *text,
                           baton__text_t *message)
{
    baton__text_add(message, "%s is \"%.200s\"", entry->variable.name, text);
    if (entry->kind == KIND_NUMBER) {
        baton__text_add(
            message, "; it must be a whole number from %lld to %lld%s%s",
            (long long)entry->min, (long long)entry->max,
            entry->variable.unit[0] != '\0' ? " " : "", entry->variable.unit);
    } else if (entry->kind == KIND_WORD) {
        baton__text_add(message, "; it must be one of: %s",
                        entry->variable.unit);
    } else {
        baton__text_add(message, "; it must be shorter than %d bytes",
                        TEXT_BYTES);
    }
    baton__text_add(message, "; unset it for \"%s\"",
                    entry->variable.default_value);
}

/* Reads an entry's value. Returns the variable's text if it is invalid, and
   NULL if the variable is valid or unset. */
static const char *read_entry(const entry_t *entry, value_t *out)
{
    bool parsed = config_parse(entry, entry->variable.default_value, out);
    assert(parsed);
    (void)parsed;
    const char *text = getenv(entry->variable.name);
    if (text == NULL || text[0] == '\0' || config_parse(entry, text, out)) {
        return NULL;
    }
    return text;
}

static void read_environment(void)
{
    first_error[0] = '\0';
    for (size_t i = 0; i < BATON__CONFIG_COUNT; i++) {
        const char *wrong = read_entry(&table[i], &values[i]);
        if (wrong != NULL && first_error[0] == '\0') {
            baton__text_t message = {first_error, sizeof first_error, 0};
            describe_wrong(&table[i], wrong, &message);
        }
    }
}

static void ensure_loaded(void)
{
    if (atomic_load_explicit(&loaded, memory_order_acquire)) {
        return;
    }
    pthread_mutex_lock(&load_lock);
    if (!atomic_load_explicit(&loaded, memory_order_relaxed)) {
        read_environment();
        atomic_store_explicit(&checked, false, memory_order_relaxed);
        atomic_store_explicit(&loaded, true, memory_order_release);
    }
    pthread_mutex_unlock(&load_lock);
}

const char *baton__config_error(void)
{
    ensure_loaded();
    return first_error;
}

bool baton__config_is_unchecked(void)
{
    ensure_loaded();
    return !atomic_exchange_explicit(&checked, true, memory_order_relaxed);
}

int64_t baton__config_number(baton__config_id_t id)
{
    assert(table[id].kind != KIND_TEXT);
    ensure_loaded();
    return values[id].number;
}

const char *baton__config_text(baton__config_id_t id)
{
    ensure_loaded();
    return values[id].text;
}

void baton__config_forget(void)
{
    atomic_store_explicit(&loaded, false, memory_order_release);
}

bool baton_variable_get(size_t i, baton_variable_t *out)
{
    if (i >= BATON__CONFIG_COUNT || out == NULL) {
        return false;
    }
    ensure_loaded();
    *out = table[i].variable;
    out->value = values[i].text;
    return true;
}

const char *baton_version(void)
{
#define TEXT_OF(number) #number
#define VERSION(major, minor, patch)                                           \
    TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)
    return VERSION(BATON_VERSION_MAJOR, BATON_VERSION_MINOR,
                   BATON_VERSION_PATCH);
#undef VERSION
#undef TEXT_OF
}
