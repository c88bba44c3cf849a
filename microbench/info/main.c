/* baton-info: what this Baton is, where it runs, what is configured. */
#include "common/cli.h"
#include "info/calibrate.h"
#include <baton/baton.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* CMakeLists.txt defines these. */
#ifndef BATON_BUILD_TYPE
#define BATON_BUILD_TYPE     "unknown"
#define BATON_BUILD_COMPILER "unknown"
#define BATON_BUILD_FLAGS    ""
#endif

static const char doc[] =
    "Prints Baton's version, how it was built, what it uses of this processor, "
    "its transports, and the BATON_* variables with their values. Or which "
    "algorithm a collective takes; or, under mpirun, measures what messages "
    "and reductions cost.";

typedef struct request {
    bool json;
    uint64_t ranks; /* of --choices; 0 means not asked for */
    uint64_t hosts;
    uint64_t processors;
    const char *calibrate;
} request_t;

static const cli_option_t options[] = {
    {CLI_ANY, "json", 0, offsetof(request_t, json), CLI_FLAG, NULL,
     "Print JSON"},
    {CLI_ANY, "choices", 0, offsetof(request_t, ranks), CLI_COUNT(1, 1 << 24),
     NULL, "Print which algorithm is chosen up to which size on so many ranks"},
    {CLI_ANY, "hosts", 0, offsetof(request_t, hosts), CLI_COUNT(1, 1 << 24),
     "1", "With --choices: the hosts that the ranks are on"},
    {CLI_ANY, "processors", 0, offsetof(request_t, processors),
     CLI_COUNT(1, 1 << 24), NULL,
     "With --choices: the processors that ranks on one host share; by default "
     "this machine's"},
    {CLI_ANY, "calibrate", 0, offsetof(request_t, calibrate), CLI_FILE, NULL,
     "Measure costs, and write them to a file for BATON_CALIBRATION"},
};

/* ---- system ----------------------------------------------------------- */

/* The features that Baton's kernels may use and that this processor has. */
static const char *processor_features(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    static char text[80];
    __builtin_cpu_init();
    (void)snprintf(text, sizeof(text), "x86-64%s%s%s%s%s",
                   __builtin_cpu_supports("avx2") ? " avx2" : "",
                   __builtin_cpu_supports("avx512f") ? " avx512f" : "",
                   __builtin_cpu_supports("avx512bw") ? " avx512bw" : "",
                   __builtin_cpu_supports("avx512dq") ? " avx512dq" : "",
                   __builtin_cpu_supports("avx512vl") ? " avx512vl" : "");
    return text;
#else
    return "portable code only";
#endif
}

/* The first line of MPI's version, which needs no MPI_Init. */
static const char *mpi_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n,")] = '\0';
    return text;
}

static bool is_set(const baton_variable_t *variable)
{
    return getenv(variable->name) != NULL;
}

/* ---- text ------------------------------------------------------------- */

static const char *or_dash(const char *text)
{
    return text[0] != '\0' ? text : "-";
}

/* Prints the unit, or the words that are allowed. */
static void print_unit(const char *unit)
{
    if (unit[0] != '\0') {
        (void)printf(" [%s]", unit);
    }
    (void)printf("\n");
}

static void print_variables(void)
{
    baton_variable_t variable;
    (void)printf("\nVariables (* set in the environment)\n"
                 "  %-18s %-10s %-10s %s\n",
                 "name", "value", "default", "what it is [unit or words]");
    for (size_t i = 0; baton_variable_get(i, &variable); i++) {
        (void)printf("%c %-18s %-10s %-10s %s", is_set(&variable) ? '*' : ' ',
                     variable.name, or_dash(variable.value),
                     or_dash(variable.default_value), variable.summary);
        print_unit(variable.unit);
    }
}

/* Messages whose blocks are printed. */
static const size_t block_sizes[] = {(size_t)64 << 10, (size_t)1 << 20,
                                     (size_t)16 << 20, (size_t)256 << 20};
enum { BLOCK_SIZES = sizeof block_sizes / sizeof *block_sizes };

static size_t block_of(size_t bytes, int hosts)
{
    size_t block = 0;
    if (baton_device_block(bytes, hosts, &block) != BATON_OK) {
        (void)fprintf(stderr, "baton-info: %s\n", baton_error_message());
        exit(EXIT_FAILURE);
    }
    return block;
}

static void print_blocks(void)
{
    (void)printf("\nBlocks of messages of device memory through the host\n"
                 "  %-18s %-10s %s\n",
                 "message", "one host", "several hosts [bytes]");
    for (int i = 0; i < BLOCK_SIZES; i++) {
        (void)printf("  %-18zu %-10zu %zu\n", block_sizes[i],
                     block_of(block_sizes[i], 1), block_of(block_sizes[i], 2));
    }
}

static void print_text(void)
{
    (void)printf("Baton       %s\n", baton_version());
    (void)printf("Build       %s, %s\n", BATON_BUILD_TYPE,
                 BATON_BUILD_COMPILER);
    (void)printf("Flags       %s\n", or_dash(BATON_BUILD_FLAGS));
    (void)printf("Kernels     %s\n", baton_kernels_name());
    (void)printf("Processor   %s\n", processor_features());
    (void)printf("Transports  mpi (%s), inproc\n", mpi_version());
    print_variables();
    print_blocks();
}

/* ---- JSON ------------------------------------------------------------- */

static void print_string(const char *text)
{
    (void)putchar('"');
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') {
            (void)printf("\\%c", byte);
        } else if (byte < 0x20) {
            (void)printf("\\u%04x", byte);
        } else {
            (void)putchar(byte);
        }
    }
    (void)putchar('"');
}

static void print_member(const char *indent, const char *key, const char *text,
                         const char *separator)
{
    (void)printf("%s\"%s\": ", indent, key);
    print_string(text);
    (void)fputs(separator, stdout);
}

static void print_variable_json(const baton_variable_t *variable)
{
    (void)printf("    {");
    print_member("", "name", variable->name, ", ");
    print_member("", "value", variable->value, ", ");
    print_member("", "default", variable->default_value, ", ");
    print_member("", "unit", variable->unit, ", ");
    print_member("", "summary", variable->summary, "");
    (void)printf("}");
}

static void print_json(void)
{
    (void)printf("{\n");
    print_member("  ", "version", baton_version(), ",\n");
    print_member("  ", "build_type", BATON_BUILD_TYPE, ",\n");
    print_member("  ", "compiler", BATON_BUILD_COMPILER, ",\n");
    print_member("  ", "flags", BATON_BUILD_FLAGS, ",\n");
    print_member("  ", "kernels", baton_kernels_name(), ",\n");
    print_member("  ", "processor", processor_features(), ",\n");
    print_member("  ", "mpi", mpi_version(), ",\n");
    (void)printf("  \"transports\": [\"mpi\", \"inproc\"],\n"
                 "  \"variables\": [\n");
    baton_variable_t variable;
    for (size_t i = 0; baton_variable_get(i, &variable); i++) {
        (void)fputs(i > 0 ? ",\n" : "", stdout);
        print_variable_json(&variable);
    }
    (void)printf("\n  ],\n  \"device_blocks\": [\n");
    for (int i = 0; i < BLOCK_SIZES; i++) {
        (void)printf("    {\"message\": %zu, \"one_host\": %zu, "
                     "\"several_hosts\": %zu}%s\n",
                     block_sizes[i], block_of(block_sizes[i], 1),
                     block_of(block_sizes[i], 2),
                     i + 1 < BLOCK_SIZES ? "," : "");
    }
    (void)printf("  ]\n}\n");
}

/* ---- choices ---------------------------------------------------------- */

static int print_choices(const request_t *request)
{
    static char text[32768];
    size_t length = 0;
    int processors = request->processors > 0
                         ? (int)request->processors
                         : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (baton_choices_text((int)request->ranks, (int)request->hosts, processors,
                           text, sizeof(text), &length) != BATON_OK) {
        (void)fprintf(stderr, "baton-info: %s\n", baton_error_message());
        return EXIT_FAILURE;
    }
    (void)fputs(text, stdout);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static const cli_program_t program = {
        .doc = doc,
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .command = CLI_ANY,
    };
    request_t request = {.hosts = 1};
    cli_verdict_t verdict = cli_parse(&program, argc, argv, true, &request);
    if (verdict != CLI_RUN) {
        return verdict == CLI_DONE ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (request.calibrate != NULL) {
        return info_calibrate(request.calibrate);
    }
    if (request.ranks > 0) {
        return print_choices(&request);
    }
    if (request.json) {
        print_json();
    } else {
        print_text();
    }
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
