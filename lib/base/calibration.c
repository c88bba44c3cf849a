/* The costs of this machine (baton_costs_t), which are estimates or come from a
   calibration file:

       baton-calibration 1
       machine AMD EPYC 7B13, 2 processors
       inside 2.1 0.09          alpha in us, beta in ns a byte
       between 12.5 0.8         as for inside
       gamma 0.05               ns a byte
       device 10 0.05           as for inside
       turn 1                   us
       machine ...              any number of further machines that may use the
                                file
       choice ...               a measured choice: see coll/tune/tune.h */
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"

#include <baton/costs.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define HEADER     "baton-calibration "
#define MACHINE    "machine "
#define RANGE      ", finite numbers that are 0 or more"
#define LINE_BYTES 256
#define PATH_BYTES 1024
enum { FORM = 1 };

/* The costs between hosts are those of TCP over 10 Gbit/s, the costs of a
   device those of 16 lanes of PCIe 4.0. Inside a host beta is fixed at 0.1. Of
   each remaining cost 5 or 6 values were tried. The values that were taken make
   Baton choose algorithms that come closest to the fastest measured ones. The
   measurements were of six collectives (of all-reduces in place, too) with 2,
   3, 4 and 8 ranks on 2 processors, with 1 KiB to 4 MiB in ordinary and in
   shared memory. */
static const baton_costs_t estimates = {
    .size = sizeof(baton_costs_t),
    .inside = {.alpha_us = 4, .beta_ns = 0.1},
    .between = {.alpha_us = 12, .beta_ns = 0.8},
    .gamma_ns = 0.03,
    .device = {.alpha_us = 10, .beta_ns = 0.05},
    .turn_us = 0.5,
};

/* ---- the machine ------------------------------------------------------- */

static char machine[LINE_BYTES];

static void find_machine(void)
{
    /* Long enough for the part of the file that describes the first
       processor. */
    char text[4096];
    (void)baton__descriptor_read("/proc/cpuinfo", text, sizeof text);
    const char *found = strstr(text, "\nmodel name");
    const char *colon = found != NULL ? strchr(found, ':') : NULL;
    const char *model = colon != NULL ? colon + 1 : " unknown processor";
    model += *model == ' ';
    int length = (int)strcspn(model, "\n");
    (void)snprintf(machine, sizeof machine, "%.*s, %ld processors",
                   length < 150 ? length : 150, model,
                   sysconf(_SC_NPROCESSORS_CONF));
}

const char *baton_machine_name(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, find_machine);
    return machine;
}

/* ---- files ------------------------------------------------------------- */

static baton_status_t calibration_system_error(const char *doing,
                                               const char *path)
{
    return baton__error(BATON_ERR_SYSTEM, "calibration: can't %s \"%s\": %s",
                        doing, path, strerror(errno));
}

static bool calibration_is_cost(double value)
{
    return isfinite(value) && value >= 0;
}

static baton_status_t calibration_check_costs(const baton_costs_t *costs)
{
    const struct {
        const char *name;
        double value;
    } all[] = {{"inside.alpha_us", costs->inside.alpha_us},
               {"inside.beta_ns", costs->inside.beta_ns},
               {"between.alpha_us", costs->between.alpha_us},
               {"between.beta_ns", costs->between.beta_ns},
               {"gamma_ns", costs->gamma_ns},
               {"device.alpha_us", costs->device.alpha_us},
               {"device.beta_ns", costs->device.beta_ns},
               {"turn_us", costs->turn_us}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!calibration_is_cost(all[i].value)) {
            return baton__error(BATON_ERR_INVALID,
                                "calibration: costs: %s is %g, must be a "
                                "finite number that is 0 or more",
                                all[i].name, all[i].value);
        }
    }
    return BATON_OK;
}

static baton_status_t check_pointers(const char *function, const char *path,
                                     const void *costs, const char *what)
{
    return baton__is_given(path, true, function, "path") &&
                   baton__is_given(costs, true, function, what)
               ? BATON_OK
               : BATON_ERR_INVALID;
}

baton_status_t baton_costs_write(const char *path, const baton_costs_t *from)
{
    baton_costs_t costs;
    baton_status_t status = check_pointers(__func__, path, from, "costs");
    if (status == BATON_OK) {
        status = baton__options_read(&costs, sizeof costs, from,
                                     "calibration: costs", "BATON_COSTS");
    }
    if (status == BATON_OK) {
        status = calibration_check_costs(&costs);
    }
    if (status != BATON_OK) {
        return status;
    }
    baton__text_t text = BATON__TEXT(4 * LINE_BYTES);
    baton__text_add(&text,
                    HEADER "%d\n" MACHINE
                           "%s\ninside %.9g %.9g\nbetween %.9g %.9g\n"
                           "gamma %.9g\ndevice %.9g %.9g\nturn %.9g\n",
                    (int)FORM, baton_machine_name(), costs.inside.alpha_us,
                    costs.inside.beta_ns, costs.between.alpha_us,
                    costs.between.beta_ns, costs.gamma_ns,
                    costs.device.alpha_us, costs.device.beta_ns, costs.turn_us);
    int file = baton__descriptor_move(
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file < 0) {
        return calibration_system_error("open", path);
    }
    bool written = write(file, text.data, text.used) == (ssize_t)text.used;
    bool closed = close(file) == 0;
    return written && closed ? BATON_OK
                             : calibration_system_error("write", path);
}

static baton_status_t wrong_line(const char *path, int number, const char *line,
                                 const char *expected)
{
    return baton__error(BATON_ERR_INVALID,
                        "calibration: line %d of \"%s\" is \"%.60s\", must be "
                        "%s",
                        number, path, line, expected);
}

/* Reads one line, without its newline. At the end of the file stores "" and
   returns false. */
static bool next_line(FILE *file, char *line)
{
    if (fgets(line, LINE_BYTES, file) == NULL) {
        line[0] = '\0';
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* Reads "name a b", or "name a" if b_out is NULL. */
static bool calibration_parse(const char *line, const char *name, double *a_out,
                              double *b_out)
{
    double *const out[] = {a_out, b_out};
    size_t length = strlen(name);
    const char *at = strncmp(line, name, length) == 0 ? line + length : NULL;
    for (int i = 0; i < 2 && at != NULL && out[i] != NULL; i++) {
        at = *at == ' ' ? baton__read_number(at + 1, out[i]) : NULL;
        at = at != NULL && calibration_is_cost(*out[i]) ? at : NULL;
    }
    return at != NULL && *at == '\0';
}

/* Returns true if the line names the machine `name`, or, if `name` is NULL, any
   machine. */
static bool names_machine(const char *line, const char *name)
{
    return strncmp(line, MACHINE, strlen(MACHINE)) == 0 &&
           (name == NULL || strcmp(line + strlen(MACHINE), name) == 0);
}

/* Checks that the file is for this machine, which is named in the line `first`
   or in a later line. Restores the file's position. */
static baton_status_t check_machine(FILE *file, const char *path,
                                    const char *first)
{
    char line[LINE_BYTES];
    long next = ftell(file);
    bool found = strcmp(first, baton_machine_name()) == 0;
    while (!found && next_line(file, line)) {
        found = names_machine(line, baton_machine_name());
    }
    if (fseek(file, next, SEEK_SET) != 0) {
        return calibration_system_error("read", path);
    }
    return found ? BATON_OK
                 : baton__error(BATON_ERR_UNSUPPORTED,
                                "calibration: \"%s\" was made on another "
                                "machine, \"%s\"; this one is \"%s\": "
                                "calibrate again, with ranks on both",
                                path, first, baton_machine_name());
}

static baton_status_t read_head(FILE *file, const char *path)
{
    char line[LINE_BYTES];
    if (!next_line(file, line) || strncmp(line, HEADER, strlen(HEADER)) != 0) {
        return wrong_line(path, 1, line, "\"" HEADER "1\"");
    }
    if (strcmp(line + strlen(HEADER), "1") != 0) {
        return baton__error(BATON_ERR_UNSUPPORTED,
                            "calibration: \"%s\" has version %.20s, and this "
                            "Baton reads version %d: calibrate again",
                            path, line + strlen(HEADER), (int)FORM);
    }
    if (!next_line(file, line) || !names_machine(line, NULL)) {
        return wrong_line(path, 2, line, "\"" MACHINE "NAME\"");
    }
    return check_machine(file, path, line + strlen(MACHINE));
}

static baton_status_t read_costs(FILE *file, const char *path,
                                 baton_costs_t *out)
{
    const struct {
        const char *name, *form;
        double *a, *b;
    } lines[] = {
        {.name = "inside",
         .form = "\"inside ALPHA_US BETA_NS\"" RANGE,
         .a = &out->inside.alpha_us,
         .b = &out->inside.beta_ns},
        {.name = "between",
         .form = "\"between ALPHA_US BETA_NS\"" RANGE,
         .a = &out->between.alpha_us,
         .b = &out->between.beta_ns},
        {.name = "gamma", .form = "\"gamma NS\"" RANGE, .a = &out->gamma_ns},
        {.name = "device",
         .form = "\"device ALPHA_US BETA_NS\"" RANGE,
         .a = &out->device.alpha_us,
         .b = &out->device.beta_ns},
        {.name = "turn", .form = "\"turn US\"" RANGE, .a = &out->turn_us},
    };
    for (int i = 0; i < (int)(sizeof lines / sizeof lines[0]); i++) {
        char line[LINE_BYTES];
        if (!next_line(file, line) ||
            !calibration_parse(line, lines[i].name, lines[i].a, lines[i].b)) {
            return wrong_line(path, 3 + i, line, lines[i].form);
        }
    }
    return BATON_OK;
}

static baton_status_t calibration_read_file(const char *path,
                                            baton_costs_t *out)
{
    FILE *file = baton__descriptor_fopen(path);
    if (file == NULL) {
        return calibration_system_error("open", path);
    }
    baton_status_t status = read_head(file, path);
    if (status == BATON_OK) {
        status = read_costs(file, path, out);
    }
    (void)fclose(file);
    return status;
}

/* Copies the costs to the caller's struct, which may be of another version. */
static baton_status_t calibration_write_costs(const baton_costs_t *costs,
                                              baton_costs_t *out)
{
    return baton__options_write(out, costs, sizeof *costs, "calibration: out",
                                "BATON_COSTS");
}

baton_status_t baton_costs_read(const char *path, baton_costs_t *out)
{
    baton_costs_t costs = {.size = sizeof costs};
    baton_status_t status = check_pointers(__func__, path, out, "out");
    if (status == BATON_OK) {
        status = calibration_read_file(path, &costs);
    }
    return status == BATON_OK ? calibration_write_costs(&costs, out) : status;
}

/* ---- the costs in force ------------------------------------------------ */

/* The lock guards the path and the costs of the file that was read last. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char known_path[PATH_BYTES];
static baton_costs_t known;

baton_status_t baton__calibration_failed(baton_status_t status)
{
    /* `warned` guards no other memory, so relaxed suffices. */
    static atomic_bool warned;
    status =
        baton__error(status, "BATON_CALIBRATION: %s", baton_error_message());
    if (status == BATON_ERR_NO_MEMORY ||
        baton__config_number(BATON__CONFIG_TUNE) == 0) {
        return status;
    }
    if (!atomic_exchange_explicit(&warned, true, memory_order_relaxed)) {
        baton__log(BATON_LOG_WARN,
                   "BATON_TUNE=measure goes on without the file: %s",
                   baton_error_message());
    }
    return BATON_OK;
}

baton_status_t baton_costs_get(baton_costs_t *out)
{
    const char *path = baton__config_text(BATON__CONFIG_CALIBRATION);
    if (path[0] == '\0') {
        return calibration_write_costs(&estimates, out);
    }
    baton_status_t status = BATON_OK;
    pthread_mutex_lock(&lock);
    if (strcmp(path, known_path) != 0) {
        status = calibration_read_file(path, &known);
        known_path[0] = '\0';
        if (status == BATON_OK) {
            (void)snprintf(known_path, sizeof known_path, "%s", path);
        }
    }
    if (status == BATON_OK) {
        status = calibration_write_costs(&known, out);
    } else {
        status = baton__calibration_failed(status);
        status = status == BATON_OK ? calibration_write_costs(&estimates, out)
                                    : status;
    }
    pthread_mutex_unlock(&lock);
    return status;
}
