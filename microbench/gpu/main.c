/* baton-bench-gpu: what Baton costs on a GPU. See `baton-bench-gpu --help`. */
#include "common/cli.h"
#include "gpu/gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char doc[] = "Measures Baton on a GPU."
                          "\vParts:\n"
#define PART_DOC(name, text) "  " #name ": " text "\n"
    GPU_PART_LIST(PART_DOC)
#undef PART_DOC
        "\n"
        "A time is the median over repetitions. A ratio is the time of what it "
        "is "
        "compared with over this one's, in the same run: 1 is as fast, 0.5 "
        "takes "
        "twice as long. One process, no MPI: the ranks are engines of it, with "
        "a "
        "progress thread each.\n\n"
        "Without a GPU it prints why, and exits with status 77.";

static const char *const part_names[] = {
#define PART_NAME(name, text) #name,
    GPU_PART_LIST(PART_NAME)
#undef PART_NAME
        NULL};

static void (*const parts[])(const gpu_options_t *, table_t *) = {
#define PART_FUNCTION(name, text) gpu_bench_##name,
    GPU_PART_LIST(PART_FUNCTION)
#undef PART_FUNCTION
};

#define AT(member) offsetof(gpu_options_t, member)

static const cli_option_t options[] = {
    {CLI_ANY, "parts", 'p', AT(parts),
     CLI_WORDS(part_names, GPU_PARTS, AT(part_count)), NULL,
     "Parts to measure, see below"},
    {CLI_ANY, "device", 'd', AT(device), CLI_COUNT(0, 1023), "0",
     "CUDA's number of the GPU"},
    {CLI_ANY, "bytes", 'b', AT(sizes),
     CLI_SIZES(16, 16, UINT64_C(4) << 30, GPU_SIZES, AT(size_count)),
     "1M,16M,64M,256M", "Sizes of the vectors of memory"},
    {CLI_ANY, "repetitions", 'r', AT(repetitions), CLI_COUNT(1, 100000), "20",
     "Repetitions of each measurement"},
    {CLI_ANY, "staged", 's', AT(staged), CLI_FLAG, NULL,
     "Messages of device memory go through the host, as between hosts"},
    {CLI_ANY, "csv", 0, AT(csv), CLI_FILE, NULL, "Write the rows as CSV"},
    {CLI_ANY, "json", 0, AT(json), CLI_FILE, NULL, "Write the rows as JSON"},
};

static const table_column_t columns[] = {
    {"part", "part", TABLE_TEXT, 10, 0},
    {"what", "what", TABLE_TEXT, 46, 0},
    {"bytes", "bytes", TABLE_FIXED, 10, 0},
    {"median_us", "us", TABLE_FIXED, 11, 1},
    {"gigabytes_per_second", "GB/s", TABLE_FIXED, 8, 1},
    {"ratio", "ratio", TABLE_FIXED, 6, 2},
    {"against", "against", TABLE_TEXT, 0, 0},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

void gpu_report(table_t *table, const gpu_row_t *row)
{
    double speed =
        row->moved_bytes > 0 ? row->moved_bytes / row->us / 1e3 : NAN;
    const table_cell_t cells[COLUMNS] = {
        table_text(row->part),    table_text(row->what),
        table_number(row->bytes), table_number(row->us),
        table_number(speed),      table_number(row->ratio),
        table_text(row->against)};
    table_row(table, cells);
    (void)fflush(stdout);
}

/* The exit status of what was skipped. */
enum { SKIPPED = 77 };

static bool find_gpu(int ordinal)
{
    baton_engine_t *engine = NULL;
    gpu_require(baton_engine_open(NULL, &engine), "engine");
    bool found = baton_cuda_attach(engine, ordinal) == BATON_OK;
    if (!found) {
        printf("skipped: %s\n", baton_error_message());
    }
    gpu_require(baton_engine_close(engine), "engine");
    return found;
}

static void print_device(int ordinal)
{
    struct cudaDeviceProp properties;
    int driver = 0;
    gpu_must(cudaSetDevice(ordinal), "cudaSetDevice");
    gpu_must(cudaGetDeviceProperties(&properties, ordinal),
             "cudaGetDeviceProperties");
    gpu_must(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    printf("%s, %d multiprocessors, driver for CUDA %d.%d, runtime %d.%d\n",
           properties.name, properties.multiProcessorCount, driver / 1000,
           driver % 1000 / 10, CUDART_VERSION / 1000,
           CUDART_VERSION % 1000 / 10);
}

int main(int argc, char **argv)
{
    static const cli_program_t program = {
        .doc = doc,
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .command = CLI_ANY,
    };
    gpu_options_t given;
    cli_verdict_t verdict = cli_parse(&program, argc, argv, true, &given);
    if (verdict != CLI_RUN) {
        return verdict == CLI_DONE ? EXIT_SUCCESS : CLI_EXIT_USAGE;
    }
    /* The library reads its variables once, with its first call. */
    if (given.staged && setenv("BATON_DEVICE_DIRECT", "0", 1) != 0) {
        return EXIT_FAILURE;
    }
    if (!find_gpu((int)given.device)) {
        return SKIPPED;
    }
    print_device((int)given.device);
    table_t table;
    if (!table_open(&table, columns, COLUMNS, given.csv, given.json)) {
        return EXIT_FAILURE;
    }
    table_heading(&table);
    for (size_t i = 0; i < given.part_count; i++) {
        parts[given.parts[i]](&given, &table);
    }
    return table_close(&table) ? EXIT_SUCCESS : EXIT_FAILURE;
}
