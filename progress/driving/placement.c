/* Binds the progress thread to processors. No other file uses hwloc. */
#include "progress/driving/engine.h"

#include "base/error.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>

static baton_status_t bad_placement(const char *placement, const char *why)
{
    return baton__error(BATON_ERR_INVALID,
                        "placement \"%s\": %s; it can be none, or an hwloc "
                        "type with an index, such as core:0 or pu:3",
                        placement, why);
}

/* Splits a placement such as "core:3" into the type and the index. False if it
   has another form. */
static bool placement_parse(const char *placement, hwloc_obj_type_t *type,
                            unsigned *index)
{
    char name[32];
    int end = 0;
    return strchr(placement, '-') == NULL &&
           sscanf(placement, "%31[^:]:%7u%n", name, index, &end) == 2 &&
           placement[end] == '\0' &&
           hwloc_type_sscanf(name, type, NULL, 0) == 0;
}

/* Objects are counted among those that the process may use: hwloc restricts the
   topology to the binding of the process. */
static baton_status_t bind_thread(hwloc_topology_t topology, pthread_t thread,
                                  const char *placement, hwloc_obj_type_t type,
                                  unsigned index)
{
    char why[96];
    hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, index);
    if (object == NULL) {
        int count = hwloc_get_nbobjs_by_type(topology, type);
        (void)snprintf(why, sizeof why,
                       "this process may use %d of that type, counted from 0",
                       count);
        return bad_placement(placement, why);
    }
    if (hwloc_set_thread_cpubind(topology, thread, object->cpuset, 0) != 0) {
        return baton__error(BATON_ERR_SYSTEM, "placement \"%s\": %s", placement,
                            baton__errno_text(errno));
    }
    return BATON_OK;
}

baton_status_t baton__place_thread(pthread_t thread, const char *placement)
{
    hwloc_topology_t topology = NULL;
    hwloc_obj_type_t type;
    unsigned index;
    if (strcmp(placement, "none") == 0) {
        return BATON_OK;
    }
    if (!placement_parse(placement, &type, &index)) {
        return bad_placement(placement, "it can't be read");
    }
    baton_status_t status = BATON_ERR_SYSTEM;
    if (hwloc_topology_init(&topology) == 0 &&
        hwloc_topology_set_flags(topology,
                                 HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING |
                                     HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM) == 0 &&
        hwloc_topology_load(topology) == 0) {
        status = bind_thread(topology, thread, placement, type, index);
    } else {
        status = baton__error(status, "hwloc can't read the topology");
    }
    if (topology != NULL) {
        hwloc_topology_destroy(topology);
    }
    return status;
}
