#include "mpi/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* POSIX requires programs to declare `environ` themselves. */
extern char **environ;

#define PREFIX "BATON_MPI_"
#define NAMES  ",FROM,ONLY,BLOCKING,THREAD,LOG,"

/* Returns a variable's value, or NULL if the variable is unset or empty. */
static const char *settings_value_of(const char *name)
{
    char variable[64];
    (void)snprintf(variable, sizeof variable, PREFIX "%s", name);
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int64_t settings_number(const char *name, int64_t otherwise,
                               int64_t most)
{
    const char *text = settings_value_of(name);
    if (text == NULL) {
        return otherwise;
    }
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end != '\0' || value < 0 || value > most) {
        (void)fprintf(
            stderr,
            "baton_mpi: " PREFIX
            "%s is \"%s\", must be a number from 0 to %lld; %lld is used\n",
            name, text, (long long)most, (long long)otherwise);
        return otherwise;
    }
    return value;
}

static void add_kind(const char *word, size_t length, uint32_t *kinds)
{
    for (int k = 0; k < BATON__MPI_KINDS; k++) {
        const char *name = baton__mpi_traits[k].name;
        if (strlen(name) == length && strncasecmp(word, name, length) == 0) {
            *kinds |= 1u << k;
            return;
        }
    }
    (void)fprintf(stderr,
                  "baton_mpi: \"%.*s\" in " PREFIX
                  "ONLY is not the name of a collective; a valid list is "
                  "allreduce,bcast,alltoallv\n",
                  (int)length, word);
}

/* Returns the kinds in a list of names, such as "allreduce,bcast". */
static uint32_t kinds_of(const char *list)
{
    if (list == NULL) {
        return UINT32_MAX;
    }
    uint32_t kinds = 0;
    while (*list != '\0') {
        size_t length = strcspn(list, ", ");
        if (length > 0) {
            add_kind(list, length, &kinds);
        }
        list += length;
        list += strspn(list, ", ");
    }
    return kinds;
}

static void settings_warn_about_unknown(void)
{
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        char name[64] = NAMES;
        if (strncmp(*at, PREFIX, strlen(PREFIX)) == 0) {
            size_t length = strcspn(*at, "=") - strlen(PREFIX);
            (void)snprintf(name, sizeof name, ",%.*s,", (int)length,
                           *at + strlen(PREFIX));
        }
        if (strstr(NAMES, name) == NULL) {
            (void)fprintf(stderr,
                          "baton_mpi: unknown variable " PREFIX "%.*s has no "
                          "effect; there are " PREFIX
                          "FROM, _ONLY, _BLOCKING, _THREAD and _LOG\n",
                          (int)strlen(name) - 2, name + 1);
        }
    }
}

void baton__mpi_settings_read(baton__mpi_settings_t *settings)
{
    settings_warn_about_unknown();
    *settings = (baton__mpi_settings_t){
        .from = settings_number("FROM", 0, INT64_MAX),
        .kinds = kinds_of(settings_value_of("ONLY")),
        .blocking = (uint8_t)settings_number("BLOCKING", 0, 1),
        .thread = (uint8_t)settings_number("THREAD", 1, 1),
        .log = (uint8_t)settings_number("LOG", 0, 1),
    };
}
