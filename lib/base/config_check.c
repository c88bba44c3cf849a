/* Reports errors in the BATON_* variables of the environment. */
#include "base/config.h"

#include "base/error.h"
#include "base/log.h"

#include <string.h>

/* The number of bytes of an unknown name that are compared, including a final
   zero. */
enum { NAME_BYTES = 48 };

/* Returns the known variable whose name is most similar to `name`, and stores
   their distance, which is 0 if the two names are equal. */
static const char *nearest_name(const char *name, size_t *distance_out)
{
    const char *nearest = "";
    size_t least = SIZE_MAX;
    baton_variable_t variable;
    for (size_t i = 0; baton_variable_get(i, &variable); i++) {
        size_t distance = baton__edit_distance(name, variable.name);
        if (distance < least) {
            least = distance;
            nearest = variable.name;
        }
    }
    *distance_out = least;
    return nearest;
}

extern char **environ; /* no header of POSIX declares this */

static bool begins_with(const char *variable, const char *prefix)
{
    return strncmp(variable, prefix, strlen(prefix)) == 0;
}

static void config_warn_about_unknown(void)
{
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        if (!begins_with(*at, BATON__CONFIG_PREFIX) ||
            begins_with(*at, BATON__CONFIG_EXTENSION) ||
            begins_with(*at, BATON__CONFIG_MPI)) {
            continue;
        }
        char name[NAME_BYTES];
        size_t length = strcspn(*at, "=");
        length = length < sizeof name ? length : sizeof name - 1;
        memcpy(name, *at, length);
        name[length] = '\0';
        size_t distance;
        const char *nearest = nearest_name(name, &distance);
        if (distance > 0) {
            baton__log(BATON_LOG_WARN,
                       "unknown variable %s has no effect; the nearest name "
                       "is %s",
                       name, nearest);
        }
    }
}

baton_status_t baton__config_check(void)
{
    const char *message = baton__config_error();
    if (baton__config_is_unchecked()) {
        if (message[0] != '\0') {
            baton__log(BATON_LOG_INFO, "%s", message);
        }
        config_warn_about_unknown();
    }
    return message[0] == '\0'
               ? BATON_OK
               : baton__error_forward(BATON_ERR_INVALID, message);
}
