/* Parses command lines with argp. A table of options has a row for each option,
   which describes it and its value. After help or an error argp ends the
   process. */
#pragma once

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- options ------------------------------------------------------------ */

typedef enum cli_kind {
    CLI_KIND_HEADING, /* the row is no option, but a heading of the help */
    CLI_KIND_FLAG,    /* the value is a bool */
    CLI_KIND_COUNT,   /* the value is a uint64_t */
    /* The value is a uint64_t. Its text may have the suffix K, M or G. */
    CLI_KIND_SIZE,
    CLI_KIND_REAL, /* the value is a double */
    CLI_KIND_WORD, /* the value is a size_t, the index of the word */
    CLI_KIND_TEXT, /* the value is a const char * */
    /* The value is a const char *, a name that ends in .svg or .png. */
    CLI_KIND_PLOT
} cli_kind_t;

enum { CLI_MOST_ITEMS = 64 };

/* The value of an option that takes a comma-separated list.

   In a list of counts or sizes LOW..HIGH stands for the values from LOW to
   HIGH, each twice the one before. In a list of words or texts each item may
   appear once. "all" stands for all words, unless it is a word itself. */
typedef struct cli_list {
    size_t count;
    union {
        uint64_t numbers[CLI_MOST_ITEMS];
        double reals[CLI_MOST_ITEMS];
        size_t words[CLI_MOST_ITEMS];
        const char *texts[CLI_MOST_ITEMS];
    };
} cli_list_t;

/* The values that an option takes. */
typedef struct cli_type {
    cli_kind_t kind;
    const char *metavar;
    double low, high;         /* the range of a number */
    uint64_t multiple;        /* a size must be a multiple of this number */
    const char *const *words; /* the words, and NULL at the end */
    bool list;                /* the value is a cli_list_t */
    bool operand; /* the value may also be given without the option's name */
} cli_type_t;

/* clang-format off */
#define CLI_NUMBER(kind_, metavar_, low_, high_)                               \
    .kind = CLI_KIND_##kind_, .metavar = (metavar_),                           \
    .low = (double)(low_), .high = (double)(high_)
#define CLI_HEADING              {.kind = CLI_KIND_HEADING}
#define CLI_FLAG                 {.kind = CLI_KIND_FLAG}
#define CLI_COUNT(low, high)     {CLI_NUMBER(COUNT, "N", low, high)}
#define CLI_COUNTS(low, high)    {CLI_NUMBER(COUNT, "LIST", low, high), .list = true}
#define CLI_SIZE(unit, low, high)                                              \
    {CLI_NUMBER(SIZE, "SIZE", low, high), .multiple = (unit)}
#define CLI_SIZES(unit, low, high)                                             \
    {CLI_NUMBER(SIZE, "LIST", low, high), .multiple = (unit), .list = true}
#define CLI_REAL(metavar_, low, high) {CLI_NUMBER(REAL, metavar_, low, high)}
#define CLI_REALS(low, high)     {CLI_NUMBER(REAL, "LIST", low, high), .list = true}
#define CLI_WORD(metavar_, words_)                                             \
    {.kind = CLI_KIND_WORD, .metavar = (metavar_), .words = (words_)}
#define CLI_WORDS(words_)                                                      \
    {.kind = CLI_KIND_WORD, .metavar = "LIST", .words = (words_), .list = true}
#define CLI_TEXT(metavar_)       {.kind = CLI_KIND_TEXT, .metavar = (metavar_)}
#define CLI_TEXTS                {.kind = CLI_KIND_TEXT, .metavar = "LIST", .list = true}
#define CLI_PLOT                 {.kind = CLI_KIND_PLOT, .metavar = "FILE"}
/* clang-format on */

/* One row of the table of options. */
typedef struct cli_option {
    uint64_t commands; /* the set of commands that take the option */
    const char *name;
    int letter;    /* the letter of the option's short form; 0: it has none */
    size_t offset; /* the offset of the value in the program's struct */
    cli_type_t type;
    /* The default, as a user would write it; NULL: the option has none. */
    const char *initial;
    const char *help; /* printed before the type's range and the default */
} cli_option_t;

/* For a program without commands: the value of `command` in its cli_program_t,
   and of `commands` in each of its options. */
enum { CLI_ANY = 1 };

/* ---- parsing ------------------------------------------------------------ */

/* A command line that is being parsed. */
typedef struct cli_parser {
    const struct cli_program *program;
    struct argp_state *state;
    void *values; /* the struct with the values of the program's options */
    /* Bit i is 1 if the command line has option i of the table. */
    uint64_t set;
} cli_parser_t;

/* A program or one of its commands. */
typedef struct cli_program {
    const char *doc; /* the text that argp calls `doc` */
    /* The table of options, at most 64 and a row of zeros. */
    const struct cli_option *options;
    unsigned command; /* the command whose options are accepted */
    /* Checks options that depend on each other. Called after all options were
       read. May be NULL. */
    void (*resolve)(const cli_parser_t *parser);
    /* The names of a program's commands, and NULL at the end; NULL if there are
       no commands. If there are, the program's struct is a single size_t, which
       gets the command's index. */
    const char *const *commands;
} cli_program_t;

/* Stores the defaults in `values`, and then the values of the command line. */
void cli_parse(const cli_program_t *program, int argc, char **argv,
               void *values);

/* Parses the first argument of a program that has several commands, and returns
   the command's index. Replaces the argument by "PROGRAM COMMAND". The command
   then parses the further arguments under that name. */
size_t cli_parse_command(const char *program, const char *about,
                         const char *const *commands, int argc, char **argv);

/* Returns whether the command line has this option. */
bool cli_is_set(const cli_parser_t *parser, const char *name);

/* Reads a value of this type. If the text is wrong, prints an error that names
   `option`, and ends the process. */
void cli_read(const cli_parser_t *parser, const char *option,
              const cli_type_t *type, const char *text, void *out);

/* Prints an error with the usage, and ends the process with the status 2. */
_Noreturn void cli_refuse(const cli_parser_t *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- values ------------------------------------------------------------- */

/* Reads a number. Returns false if the text has anything else in it. */
bool cli_read_count(const char *text, uint64_t *out);

/* Returns the value of BATON_SEED. Returns 1 if BATON_SEED is unset or no
   number; if it is no number, the library also warns. */
uint64_t cli_default_seed(void);

/* Returns a size in the form that options take: "64", "4K" or "1M". The second
   call after this one overwrites the text. */
const char *cli_format_bytes(uint64_t bytes);
