#include "layerwise_options.h"

#include "layerwise_net.h"
#include "layerwise_report.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: mpirun -np P layerwise [OPTION...]\n"
    "  --epochs N        passes over the digits, 1 to 1000 (default 10)\n"
    "  --layers N        hidden layers, 1 to 63 (default 4)\n"
    "  --width N         of a hidden layer, 1 to 8192 (default 256)\n"
    "  --batch N         images of all ranks in a step, 1 to 360 (default 96)\n"
    "  --bucket-kib N    least size of a bucket, 0 to 65536 (default 256);\n"
    "                    0: a bucket for each layer\n"
    "  --device-ms MS    sleep in each step besides computing, 0 to 10000\n"
    "                    (default 0); auto: as long as MPI_Allreduce took\n"
    "                    in the first epoch\n"
    "  --require F       fail unless all systems reach this accuracy, 0 to 1\n"
    "  --digits FILE     .csv or .csv.gz (scripts/digits.sh fetches it)\n"
    "  --csv FILE, --json FILE, --plot FILE (.svg, .png; needs gnuplot)\n";

static bool speaks; /* this rank prints what is wrong */

static bool read_number(const char *text, double least, double most,
                        double *out)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !(number >= least && number <= most)) {
        if (speaks) {
            fprintf(stderr, "layerwise: \"%s\" is not a number from %g to %g\n",
                    text, least, most);
        }
        return false;
    }
    *out = number;
    return true;
}

static bool read_count(const char *text, double least, double most, size_t *out)
{
    double number = 0;
    if (!read_number(text, least, most, &number)) {
        return false;
    }
    *out = (size_t)number;
    return true;
}

static bool read_device(const char *text, options_t *out)
{
    out->device_auto = strcmp(text, "auto") == 0;
    return out->device_auto || read_number(text, 0, 10000, &out->device_ms);
}

static bool read_option(int option, const char *text, options_t *out)
{
    size_t count = 0;
    bool valid = true;
    switch (option) {
    case 'e':
        valid = read_count(text, 1, MOST_EPOCHS, &count);
        out->epochs = (int)count;
        return valid;
    case 'l':
        return read_count(text, 1, NET_MOST_LAYERS - 1, &out->hidden_layers);
    case 'w':
        return read_count(text, 1, 8192, &out->width);
    case 'b':
        return read_count(text, 1, TESTED, &out->batch_of_all);
    case 'k':
        valid = read_count(text, 0, 65536, &out->bucket_bytes);
        out->bucket_bytes <<= 10;
        return valid;
    case 'd':
        return read_device(text, out);
    case 'r':
        return read_number(text, 0, 1, &out->required);
    case 'i':
        out->digits_name = text;
        return true;
    case 'c':
        out->csv_name = text;
        return true;
    case 'j':
        out->json_name = text;
        return true;
    case 'p':
        out->plot_name = text;
        return true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, options_t *out)
{
    static const struct option options[] = {
        {"epochs", required_argument, NULL, 'e'},
        {"layers", required_argument, NULL, 'l'},
        {"width", required_argument, NULL, 'w'},
        {"batch", required_argument, NULL, 'b'},
        {"bucket-kib", required_argument, NULL, 'k'},
        {"device-ms", required_argument, NULL, 'd'},
        {"require", required_argument, NULL, 'r'},
        {"digits", required_argument, NULL, 'i'},
        {"csv", required_argument, NULL, 'c'},
        {"json", required_argument, NULL, 'j'},
        {"plot", required_argument, NULL, 'p'},
        {0}};
    opterr = speaks;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (!read_option(option, optarg, out)) {
            return false;
        }
    }
    return optind == argc;
}

bool options_read(int argc, char **argv, bool speak, options_t *out)
{
    speaks = speak;
    *out = (options_t){.epochs = 10,
                       .hidden_layers = 4,
                       .width = 256,
                       .batch_of_all = 96,
                       .bucket_bytes = (size_t)256 << 10};
    if (parse(argc, argv, out)) {
        return true;
    }
    if (speak) {
        fputs(usage, stderr);
    }
    return false;
}
