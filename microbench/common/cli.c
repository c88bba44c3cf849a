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

enum {
    ITEM_BYTES = 64,
    COMPLAINT_BYTES = 192,
    HELP_BYTES = 320,
    MAX_OPTIONS = 64,
    EXIT_USAGE = 2
};

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
    static char texts[2][32];
    static size_t calls;
    char *text = texts[calls++ % 2];
    size_t power = 0;
    for (; power < 3 && bytes >= 1024 && bytes % 1024 == 0; power++) {
        bytes /= 1024;
    }
    (void)snprintf(text, sizeof(texts[0]), "%" PRIu64 "%.1s", bytes,
                   &"\0KMG"[power]);
    return text;
}

/* ---- types -------------------------------------------------------------- */

/* Writes the range of a type's values, such as "1 to 64" or "ring, binomial".
   Writes nothing if any value is allowed. */
static void cli_describe(const cli_type_t *type, char text[COMPLAINT_BYTES])
{
    text[0] = '\0';
    if (type->kind == CLI_KIND_PLOT) {
        (void)snprintf(text, COMPLAINT_BYTES, "%s",
                       "a name that ends in .svg or .png");
    } else if (type->kind == CLI_KIND_SIZE) {
        (void)snprintf(text, COMPLAINT_BYTES,
                       type->multiple > 1
                           ? "%s to %s (K, M, G: powers of 1024), multiples of "
                             "%" PRIu64
                           : "%s to %s (K, M, G: powers of 1024)",
                       cli_format_bytes((uint64_t)type->low),
                       cli_format_bytes((uint64_t)type->high), type->multiple);
    } else if (type->high > 0 && (type->high < 0x1p64 || type->low > 0)) {
        (void)snprintf(text, COMPLAINT_BYTES,
                       type->high < 0x1p64 ? "%.15g to %.15g" : "%.15g or more",
                       type->low, type->high);
    }
    for (size_t i = 0; type->words != NULL && type->words[i] != NULL; i++) {
        size_t end = strlen(text);
        (void)snprintf(text + end, COMPLAINT_BYTES - end, "%s%s",
                       i > 0 ? ", " : "", type->words[i]);
    }
}

/* Finds the index of a word in a list that NULL ends. Returns false if the word
   is not in the list. */
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
    uint64_t *number = out;
    double *real = out;
    char *end = NULL;
    switch (type->kind) {
    case CLI_KIND_FLAG:
        *(bool *)out = true;
        return true;
    case CLI_KIND_COUNT:
    case CLI_KIND_SIZE:
        return cli_read_digits(text, type->kind == CLI_KIND_SIZE ? "KMG" : "",
                               number) &&
               (double)*number >= type->low && (double)*number <= type->high &&
               (type->multiple == 0 || *number % type->multiple == 0);
    case CLI_KIND_REAL:
        *real = strtod(text, &end);
        return end != text && *end == '\0' && *real >= type->low &&
               *real <= type->high;
    case CLI_KIND_WORD:
        return read_word(type->words, text, out);
    /* The name is checked here, because gnuplot would complain only after
       measuring. */
    case CLI_KIND_PLOT:
        *(const char **)out = text;
        end = strrchr(text, '.');
        return end != NULL &&
               (strcmp(end, ".svg") == 0 || strcmp(end, ".png") == 0);
    case CLI_KIND_TEXT:
        *(const char **)out = text;
        return true;
    case CLI_KIND_HEADING:
        break;
    }
    return false;
}

/* An option whose value is being read. */
typedef struct reading {
    const cli_parser_t *parser;
    const char *option;
    const cli_type_t *type;
    cli_list_t *list;
} reading_t;

static void read_one(const reading_t *reading, const char *text, void *out)
{
    static const char *const expected[] = {[CLI_KIND_COUNT] = "a number: ",
                                           [CLI_KIND_REAL] = "a number: ",
                                           [CLI_KIND_SIZE] = "a size from ",
                                           [CLI_KIND_WORD] = "one of ",
                                           [CLI_KIND_PLOT] = ""};
    char range[COMPLAINT_BYTES];
    cli_describe(reading->type, range);
    if (!read_value(reading->type, text, out)) {
        cli_refuse(reading->parser, "%s: '%.60s' is not %s%s", reading->option,
                   text, expected[reading->type->kind], range);
    }
}

static void read_item(const reading_t *reading, const char *item)
{
    cli_list_t *list = reading->list;
    size_t last = list->count++;
    if (last == CLI_MOST_ITEMS) {
        cli_refuse(reading->parser,
                   "%s: '%s' is one too many: at most %d values",
                   reading->option, item, CLI_MOST_ITEMS);
    }
    read_one(reading, item, &list->numbers[last]);
    for (size_t i = 0; i < last; i++) {
        if (reading->type->kind == CLI_KIND_WORD
                ? list->words[i] == list->words[last]
                : reading->type->kind == CLI_KIND_TEXT &&
                      strcmp(list->texts[i], item) == 0) {
            cli_refuse(reading->parser, "%s: '%s' is in the list twice",
                       reading->option, item);
        }
    }
}

/* Reads "LOW..HIGH", which stands for the values from LOW to HIGH, each twice
   the one before. */
static void read_range(const reading_t *reading, const char *low_text,
                       const char *high_text)
{
    char text[32];
    uint64_t low = 0, high = 0;
    read_one(reading, low_text, &low);
    read_one(reading, high_text, &high);
    if (low > high || low == 0) {
        cli_refuse(reading->parser, "%s: '%s..%s' %s", reading->option,
                   low_text, high_text,
                   low > high ? "ends before it begins"
                              : "begins with 0, which can't be doubled");
    }
    for (uint64_t next = low; next <= high && next > 0; next *= 2) {
        (void)snprintf(text, sizeof(text), "%" PRIu64, next);
        read_item(reading, text);
    }
}

static void read_list(const reading_t *reading, const char *text)
{
    const cli_type_t *type = reading->type;
    size_t all = 0;
    reading->list->count = 0;
    if (type->kind == CLI_KIND_WORD && strcmp(text, "all") == 0 &&
        !read_word(type->words, text, &all)) {
        for (; type->words[all] != NULL; all++) {
            read_item(reading, type->words[all]);
        }
        return;
    }
    /* The copies of the lists are never freed, because reading->list->texts
       points into them. */
    static char **copies;
    static size_t copy_count;
    copies = realloc(copies, (copy_count + 1) * sizeof *copies);
    char *rest = copies[copy_count++] = strdup(text);
    for (char *item; (item = strsep(&rest, ",")) != NULL;) {
        char *dots = type->multiple > 0 || type->kind == CLI_KIND_COUNT
                         ? strstr(item, "..")
                         : NULL;
        if (dots == NULL) {
            read_item(reading, item);
        } else {
            *dots = '\0';
            read_range(reading, item, dots + 2);
        }
    }
}

void cli_read(const cli_parser_t *parser, const char *option,
              const cli_type_t *type, const char *text, void *out)
{
    const reading_t reading = {parser, option, type, out};
    if (type->list) {
        read_list(&reading, text);
    } else {
        read_one(&reading, text, out);
    }
}

/* ---- the table ---------------------------------------------------------- */

/* Returns the key by which argp names an option of the command: its letter, or
   256 plus the row's index. Returns -1 if the command has no such option. */
static int cli_key_of(const cli_program_t *program, size_t i)
{
    const cli_option_t *option = &program->options[i];
    int key = option->letter != 0 ? option->letter : 256 + (int)i;
    return (option->commands & program->command) != 0 ? key : -1;
}

/* Writes "HELP [RANGE; default DEFAULT]". */
static void write_help(const cli_option_t *option, char help[HELP_BYTES])
{
    char range[COMPLAINT_BYTES];
    bool initial = option->initial != NULL;
    cli_describe(&option->type, range);
    bool both = initial && range[0] != '\0';
    (void)snprintf(help, HELP_BYTES,
                   initial || range[0] != '\0' ? "%s [%s%s%s%s]" : "%s",
                   option->help, range, both ? "; " : "",
                   initial ? "default " : "", initial ? option->initial : "");
}

bool cli_is_set(const cli_parser_t *parser, const char *name)
{
    bool set = false;
    for (size_t i = 0; parser->program->options[i].name != NULL; i++) {
        set |= (parser->set >> i & 1) != 0 &&
               strcmp(parser->program->options[i].name, name) == 0;
    }
    return set;
}

/* Reads an option's value into the program's struct. */
static void cli_read_option(const cli_parser_t *parser,
                            const cli_option_t *option, const char *text)
{
    char name[ITEM_BYTES];
    (void)snprintf(name, sizeof(name), "--%s", option->name);
    cli_read(parser, name, &option->type, text,
             (char *)parser->values + option->offset);
}

/* ---- parsing ------------------------------------------------------------ */

void cli_refuse(const cli_parser_t *parser, const char *format, ...)
{
    char text[ITEM_BYTES + 2 * COMPLAINT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    argp_error(parser->state, "%s", text);
    exit(EXIT_USAGE); /* argp_error is not declared noreturn */
}

static error_t cli_parse_option(int key, char *text, struct argp_state *state)
{
    cli_parser_t *parser = state->input;
    const cli_program_t *program = parser->program;
    const cli_type_t command = CLI_WORD(NULL, program->commands);
    parser->state = state;
    bool is_argument = key == ARGP_KEY_ARG || key == ARGP_KEY_NO_ARGS;
    if (key == 'h') {
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        return 0;
    }
    if (key == ARGP_KEY_END && program->resolve != NULL) {
        program->resolve(parser);
        return 0;
    }
    if (is_argument && program->commands != NULL) {
        cli_read(parser, "COMMAND", &command, text != NULL ? text : "",
                 parser->values);
        return 0;
    }
    for (size_t i = 0; program->options[i].name != NULL; i++) {
        const cli_option_t *option = &program->options[i];
        bool is_operand = key == ARGP_KEY_ARG && option->type.operand &&
                          !cli_is_set(parser, option->name);
        if (is_operand || cli_key_of(program, i) == key) {
            parser->set |= UINT64_C(1) << i;
            cli_read_option(parser, option, text);
            return 0;
        }
    }
    if (key == ARGP_KEY_ARG) {
        cli_refuse(parser, "argument: '%s' is not an option", text);
    }
    return ARGP_ERR_UNKNOWN;
}

static void cli_print_version(FILE *stream, struct argp_state *state)
{
    (void)fprintf(stream, "%s %s\n", state->name, baton_version());
}

void cli_parse(const cli_program_t *program, int argc, char **argv,
               void *values)
{
    struct argp_option rows[MAX_OPTIONS + 2] = {
        {.key = 'h', .flags = OPTION_HIDDEN}};
    char helps[MAX_OPTIONS][HELP_BYTES];
    cli_parser_t parser = {.program = program, .values = values};
    struct argp_option *row = rows;
    char operand[40] = "";
    int group = 0;
    /* The C locale makes numbers independent of the user's locale. */
    (void)uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    for (size_t i = 0; program->options[i].name != NULL; i++) {
        const cli_option_t *option = &program->options[i];
        int key = cli_key_of(program, i);
        assert(i < MAX_OPTIONS);
        if (key < 0) {
            continue;
        }
        if (option->type.kind == CLI_KIND_HEADING) {
            *++row =
                (struct argp_option){.doc = option->name, .group = ++group};
            continue;
        }
        write_help(option, helps[i]);
        *++row = (struct argp_option){.name = option->name,
                                      .key = key,
                                      .arg = option->type.metavar,
                                      .doc = helps[i],
                                      .group = group};
        if (option->type.operand) {
            (void)snprintf(operand, sizeof operand, "[%s]",
                           option->type.metavar);
        }
        if (option->initial != NULL) {
            cli_read_option(&parser, option, option->initial);
        }
    }
    const char *arguments = operand[0] != '\0' ? operand : NULL;
    const struct argp argp = {.options = rows,
                              .parser = cli_parse_option,
                              .args_doc = program->commands != NULL
                                              ? "COMMAND [OPTION...]"
                                              : arguments,
                              .doc = program->doc};
    argp_err_exit_status = EXIT_USAGE;
    argp_program_version_hook = cli_print_version;
    (void)argp_parse(&argp, argc, argv, 0, NULL, &parser);
}

size_t cli_parse_command(const char *program, const char *about,
                         const char *const *commands, int argc, char **argv)
{
    static char name[ITEM_BYTES];
    size_t index = 0;
    static const cli_option_t none = {.name = NULL};
    const cli_program_t first = {
        .doc = about, .options = &none, .commands = commands};
    cli_parse(&first, argc < 2 ? argc : 2, argv, &index);
    (void)snprintf(name, sizeof(name), "%s %s", program, commands[index]);
    argv[1] = name;
    return index;
}

uint64_t cli_default_seed(void)
{
    uint64_t seed = 1;
    const char *text = getenv("BATON_SEED");
    return text != NULL && cli_read_count(text, &seed) ? seed : 1;
}
