#include "common/cli.h"
#include <assert.h>
#include <baton/engine.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM_BYTES = 64, COMPLAINT_BYTES = 192, HELP_BYTES = 320 };

/* ---- numbers ------------------------------------------------------------ */

/* Reads a number, which may end in one of the suffixes. The first suffix stands
   for 1024, and each further one for 1024 times the one before. Rejects signs
   and blanks, which strtoull alone would accept. */
static bool cli_read_digits(const char *text, const char *suffixes,
                            uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    const char *suffix = *end != '\0' ? strchr(suffixes, *end) : NULL;
    unsigned shift =
        suffix != NULL ? 10 * (unsigned)(suffix - suffixes + 1) : 0;
    *out = value << shift;
    return *text >= '0' && *text <= '9' && errno == 0 &&
           end[suffix != NULL] == '\0' && value <= UINT64_MAX >> shift;
}

bool cli_read_count(const char *text, uint64_t *out)
{
    return cli_read_digits(text, "", out);
}

const char *cli_format_bytes(uint64_t bytes)
{
    static const char *const suffixes[] = {"", "K", "M", "G"};
    static char texts[2][32];
    static size_t calls;
    char *text = texts[calls++ % 2];
    size_t power = 0;
    while (power < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        power++;
    }
    (void)snprintf(text, sizeof(texts[0]), "%" PRIu64 "%s", bytes,
                   suffixes[power]);
    return text;
}

/* ---- types -------------------------------------------------------------- */

/* Writes the range of a type's values, such as "1 to 64" or "ring, binomial".
   Writes nothing if any value is allowed. */
static void cli_describe(const cli_type_t *type, char text[COMPLAINT_BYTES])
{
    text[0] = '\0';
    switch (type->kind) {
    case CLI_KIND_COUNT:
        if (type->max < UINT64_MAX) {
            (void)snprintf(text, COMPLAINT_BYTES, "%" PRIu64 " to %" PRIu64,
                           type->min, type->max);
        } else if (type->min > 0) {
            (void)snprintf(text, COMPLAINT_BYTES, "%" PRIu64 " or more",
                           type->min);
        }
        break;
    case CLI_KIND_SIZE:
        (void)snprintf(text, COMPLAINT_BYTES,
                       type->multiple > 1
                           ? "%s to %s (K, M, G: powers of 1024), in elements "
                             "of %" PRIu64 " bytes"
                           : "%s to %s (K, M, G: powers of 1024)",
                       cli_format_bytes(type->min), cli_format_bytes(type->max),
                       type->multiple);
        break;
    case CLI_KIND_REAL:
        (void)snprintf(text, COMPLAINT_BYTES, "%.15g to %.15g", type->low,
                       type->high);
        break;
    case CLI_KIND_WORD:
        for (size_t i = 0; type->words[i] != NULL; i++) {
            size_t end = strlen(text);
            (void)snprintf(text + end, COMPLAINT_BYTES - end, "%s%s",
                           i > 0 ? ", " : "", type->words[i]);
        }
        break;
    case CLI_KIND_PLOT:
        (void)snprintf(text, COMPLAINT_BYTES,
                       "a name that ends in .svg or .png");
        break;
    case CLI_KIND_HEADING:
    case CLI_KIND_FLAG:
    case CLI_KIND_TEXT:
    case CLI_KIND_ITEMS:
        break;
    }
}

/* Finds the index of a word. */
static bool read_word(const char *const *words, const char *text, size_t *out)
{
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* Reads one value. Returns false if the text is no value of the type. */
static bool read_value(const cli_type_t *type, const char *text, void *out)
{
    const char *suffixes = type->kind == CLI_KIND_SIZE ? "KMG" : "";
    uint64_t *number = out;
    double *real = out;
    char *end = NULL;
    switch (type->kind) {
    case CLI_KIND_FLAG:
        *(bool *)out = true;
        return true;
    case CLI_KIND_COUNT:
    case CLI_KIND_SIZE:
        return cli_read_digits(text, suffixes, number) &&
               *number >= type->min && *number <= type->max &&
               (type->multiple <= 1 || *number % type->multiple == 0);
    case CLI_KIND_REAL:
        *real = strtod(text, &end);
        return end != text && *end == '\0' && *real >= type->low &&
               *real <= type->high;
    case CLI_KIND_WORD:
        return read_word(type->words, text, out);
    case CLI_KIND_PLOT: /* gnuplot would complain only after measuring */
    case CLI_KIND_TEXT:
        *(const char **)out = text;
        end = strrchr(text, '.');
        return type->kind == CLI_KIND_TEXT ||
               (end != NULL &&
                (strcmp(end, ".svg") == 0 || strcmp(end, ".png") == 0));
    case CLI_KIND_HEADING:
    case CLI_KIND_ITEMS:
        break;
    }
    return false;
}

/* The state while an option's value, or list of values, is read. */
typedef struct reading {
    const cli_parser_t *parser;
    const char *option;
    const cli_type_t *type;
    char *out;
    size_t count;
} reading_t;

static error_t read_one(const reading_t *reading, const char *text, void *out)
{
    char range[COMPLAINT_BYTES];
    cli_kind_t kind = reading->type->kind;
    if (read_value(reading->type, text, out)) {
        return 0;
    }
    cli_describe(reading->type, range);
    return cli_refuse(reading->parser, "%s: '%.60s' is not %s%s",
                      reading->option, text,
                      kind == CLI_KIND_WORD   ? "one of "
                      : kind == CLI_KIND_PLOT ? ""
                      : kind == CLI_KIND_SIZE ? "a size from "
                      : range[0] == '\0'      ? "a number"
                                              : "a number: ",
                      range);
}

/* Reads an item of `list`, in which the earlier items end with a NUL each. A
   word may appear only once, and so may an item that the program itself
   reads. */
static error_t read_item(reading_t *reading, const char *item, const char *list)
{
    const cli_type_t *type = reading->type;
    bool word = type->kind == CLI_KIND_WORD;
    bool once = word || type->kind == CLI_KIND_ITEMS;
    size_t size = word ? sizeof(size_t) : sizeof(uint64_t);
    if (reading->count == type->room) {
        return cli_refuse(reading->parser,
                          "%s: '%s' is one too many: at most %zu values",
                          reading->option, item, type->room);
    }
    for (; once && list != item; list += strlen(list) + 1) {
        if (strcmp(item, list) == 0) {
            return cli_refuse(reading->parser, "%s: '%s' is in the list twice",
                              reading->option, item);
        }
    }
    error_t error =
        type->read != NULL
            ? type->read(reading->parser, item, reading->count)
            : read_one(reading, item, reading->out + reading->count * size);
    reading->count += error == 0;
    return error;
}

/* Reads "LOW..HIGH", which stands for the values from LOW to HIGH, each twice
   the one before. */
static error_t read_range(reading_t *reading, const char *low_text,
                          const char *high_text)
{
    char text[32];
    uint64_t low = 0, high = 0;
    error_t error = read_one(reading, low_text, &low);
    error = error != 0 ? error : read_one(reading, high_text, &high);
    if (error == 0 && (low > high || low == 0)) {
        return cli_refuse(reading->parser, "%s: '%s..%s' %s", reading->option,
                          low_text, high_text,
                          low > high ? "ends before it begins"
                                     : "begins with 0, which has no double");
    }
    for (uint64_t next = low; error == 0 && next <= high && next > 0;
         next *= 2) {
        (void)snprintf(text, sizeof(text), "%" PRIu64, next);
        error = read_item(reading, text, text);
    }
    return error;
}

error_t cli_read(const cli_parser_t *parser, const char *option,
                 const cli_type_t *type, const char *text, void *out,
                 size_t *count_out)
{
    reading_t reading = {parser, option, type, out, 0};
    bool numbers = type->kind == CLI_KIND_COUNT || type->kind == CLI_KIND_SIZE;
    char *list = NULL, *rest = NULL;
    size_t *indices = out, all = 0;
    error_t error = 0;
    if (type->room == 0) {
        return read_one(&reading, text, out);
    }
    if (type->kind == CLI_KIND_WORD && strcmp(text, "all") == 0 &&
        !read_word(type->words, text, &all)) {
        for (; type->words[reading.count] != NULL && reading.count < type->room;
             reading.count++) {
            indices[reading.count] = reading.count;
        }
    } else if ((rest = list = strdup(text)) == NULL) {
        return ENOMEM;
    }
    for (char *item; error == 0 && (item = strsep(&rest, ",")) != NULL;) {
        char *dots = numbers ? strstr(item, "..") : NULL;
        if (dots != NULL) {
            *dots = '\0';
            error = read_range(&reading, item, dots + 2);
        } else {
            error = read_item(&reading, item, list);
        }
    }
    free(list);
    *count_out = reading.count;
    return error;
}

/* ---- the table ---------------------------------------------------------- */

/* Keys that argp returns: an option's letter, or KEY_OPTION plus the option's
   index. */
enum {
    KEY_OPTION = 0x100,
    KEY_HELP = 'h',
    KEY_VERSION = 'V',
    KEY_USAGE = 0x10000
};

enum { MAX_OPTIONS = 64 };

/* The options of one command in argp's form, with the help texts that they
   point to. */
typedef struct argp_table {
    struct argp_option options[MAX_OPTIONS + 4];
    char helps[MAX_OPTIONS][HELP_BYTES];
} argp_table_t;

static bool is_taken(const cli_program_t *program, size_t i)
{
    return (program->options[i].commands & program->command) != 0;
}

static int cli_key_of(const cli_program_t *program, size_t i)
{
    int letter = program->options[i].letter;
    return letter != 0 ? letter : KEY_OPTION + (int)i;
}

/* Writes "HELP [RANGE; default DEFAULT]". */
static void write_help(const cli_option_t *option, char help[HELP_BYTES])
{
    char range[COMPLAINT_BYTES];
    cli_describe(&option->type, range);
    const char *initial = option->initial;
    (void)snprintf(help, HELP_BYTES, "%s", option->help);
    size_t end = strlen(help);
    if (range[0] != '\0' || initial != NULL) {
        (void)snprintf(help + end, HELP_BYTES - end, " [%s%s%s%s]", range,
                       range[0] != '\0' && initial != NULL ? "; " : "",
                       initial != NULL ? "default " : "",
                       initial != NULL ? initial : "");
    }
}

static void fill_table(const cli_program_t *program, argp_table_t *table)
{
    static const struct argp_option common[] = {
        {"help", KEY_HELP, NULL, 0, "Print this help", -1},
        {"usage", KEY_USAGE, NULL, 0, "Print a short usage message", -1},
        {"version", KEY_VERSION, NULL, 0, "Print the version", -1},
        {0}};
    size_t count = 0;
    int group = 0;
    assert(program->option_count <= MAX_OPTIONS);
    for (size_t i = 0; i < program->option_count; i++) {
        const cli_option_t *option = &program->options[i];
        if (!is_taken(program, i)) {
            continue;
        }
        struct argp_option *entry = &table->options[count];
        if (option->type.kind == CLI_KIND_HEADING) {
            *entry =
                (struct argp_option){.doc = option->name, .group = ++group};
        } else {
            write_help(option, table->helps[count]);
            *entry = (struct argp_option){
                option->name,         cli_key_of(program, i),
                option->type.metavar, 0,
                table->helps[count],  group};
        }
        count++;
    }
    memcpy(&table->options[count], common, sizeof(common));
}

/* Reads an option's value into the program's struct. Messages call the option
   `name`. */
static error_t cli_read_option(const cli_parser_t *parser,
                               const cli_option_t *option, const char *name,
                               const char *text)
{
    char *values = parser->values;
    return cli_read(parser, name, &option->type, text, values + option->offset,
                    (size_t *)(void *)(values + option->type.count_offset));
}

/* Stores every default. A default is read like a value of the command line, so
   it has the option's type. */
static void store_defaults(const cli_parser_t *parser)
{
    const cli_program_t *program = parser->program;
    for (size_t i = 0; i < program->option_count; i++) {
        const cli_option_t *option = &program->options[i];
        if (is_taken(program, i) && option->initial != NULL) {
            (void)cli_read_option(parser, option, option->name,
                                  option->initial);
        }
    }
}

/* ---- parsing ------------------------------------------------------------ */

error_t cli_refuse(const cli_parser_t *parser, const char *format, ...)
{
    char text[ITEM_BYTES + 2 * COMPLAINT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    argp_error(parser->state, "%s", text);
    return EINVAL;
}

bool cli_is_given(const cli_parser_t *parser, const char *name)
{
    const cli_program_t *program = parser->program;
    for (size_t i = 0; i < program->option_count; i++) {
        if (is_taken(program, i) &&
            strcmp(program->options[i].name, name) == 0) {
            return (parser->given >> i & 1) != 0;
        }
    }
    return false;
}

/* Prints help or version. Ends the parsing by returning ECANCELED, since argp
   itself would exit. */
static error_t cli_answer(int key, const struct argp_state *state)
{
    if ((state->flags & ARGP_NO_ERRS) != 0) {
        return ECANCELED;
    }
    if (key == KEY_VERSION) {
        (void)printf("%s %s\n", state->name, baton_version());
    } else {
        argp_state_help(state, stdout,
                        key == KEY_USAGE ? ARGP_HELP_USAGE
                                         : ARGP_HELP_SHORT_USAGE |
                                               ARGP_HELP_LONG | ARGP_HELP_DOC);
    }
    return ECANCELED;
}

static error_t parse_option(cli_parser_t *parser, int key, const char *text)
{
    const cli_program_t *program = parser->program;
    for (size_t i = 0; i < program->option_count; i++) {
        const cli_option_t *option = &program->options[i];
        if (is_taken(program, i) && option->type.kind != CLI_KIND_HEADING &&
            cli_key_of(program, i) == key) {
            char name[ITEM_BYTES];
            (void)snprintf(name, sizeof(name), "--%s", option->name);
            parser->given |= UINT64_C(1) << i;
            return cli_read_option(parser, option, name, text);
        }
    }
    return ARGP_ERR_UNKNOWN;
}

static error_t find_command(const cli_parser_t *parser, const char *word)
{
    const cli_type_t type = CLI_WORD(NULL, parser->program->commands);
    return cli_read(parser, "COMMAND", &type, word, parser->values, NULL);
}

static error_t cli_parse_option(int key, char *text, struct argp_state *state)
{
    cli_parser_t *parser = state->input;
    const cli_program_t *program = parser->program;
    parser->state = state;
    switch (key) {
    case KEY_HELP:
    case KEY_USAGE:
    case KEY_VERSION:
        return cli_answer(key, state);
    case ARGP_KEY_ARG:
        return program->commands != NULL
                   ? find_command(parser, text)
                   : cli_refuse(parser, "argument: '%s' is not an option",
                                text);
    case ARGP_KEY_NO_ARGS:
        return program->commands != NULL ? find_command(parser, "")
                                         : ARGP_ERR_UNKNOWN;
    case ARGP_KEY_END:
        return program->resolve != NULL ? program->resolve(parser)
                                        : ARGP_ERR_UNKNOWN;
    default:
        return parse_option(parser, key, text);
    }
}

cli_verdict_t cli_parse(const cli_program_t *program, int argc, char **argv,
                        bool speak, void *values)
{
    argp_table_t table;
    /* The C locale makes numbers independent of the user's locale. */
    (void)uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    fill_table(program, &table);
    const struct argp argp = {
        .options = table.options,
        .parser = cli_parse_option,
        .args_doc = program->arguments,
        .doc = program->doc,
    };
    cli_parser_t parser = {.program = program, .values = values};
    store_defaults(&parser);
    unsigned flags = ARGP_NO_EXIT | ARGP_NO_HELP | (speak ? 0 : ARGP_NO_ERRS);
    error_t error = argp_parse(&argp, argc, argv, flags, NULL, &parser);
    return error == ECANCELED ? CLI_DONE : error == 0 ? CLI_RUN : CLI_BAD;
}

cli_verdict_t cli_parse_command(const char *program, const char *help,
                                const char *const *commands, int argc,
                                char **argv, bool speak, size_t *index_out)
{
    static char name[ITEM_BYTES];
    const cli_program_t first = {
        .doc = help,
        .arguments = "COMMAND [OPTION...]",
        .commands = commands,
    };
    cli_verdict_t verdict =
        cli_parse(&first, argc < 2 ? argc : 2, argv, speak, index_out);
    if (verdict == CLI_RUN) {
        (void)snprintf(name, sizeof(name), "%s %s", program,
                       commands[*index_out]);
        argv[1] = name;
    }
    return verdict;
}

uint64_t cli_default_seed(void)
{
    uint64_t seed = 1;
    const char *text = getenv("BATON_SEED");
    return text != NULL && cli_read_count(text, &seed) ? seed : 1;
}
