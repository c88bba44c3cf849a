/* Parses command lines by a table of options. In a program with many ranks
   every rank parses the same command line, and only rank 0 prints. No rank
   exits on its own, since mpirun would report that as a crash. */
#ifndef MICROBENCH_CLI_H
#define MICROBENCH_CLI_H

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
    CLI_KIND_PLOT,
    /* The value is a list, whose items a function of the program reads. */
    CLI_KIND_ITEMS
} cli_kind_t;

struct cli_parser;

/* The values that an option takes. A number or a word may also be a
   comma-separated list. Then `room` is the size of the array, and count_offset
   is the offset of the size_t that gets the number of values.

   In a list of counts or sizes LOW..HIGH stands for the values from LOW to
   HIGH, each twice the one before. In a list of words, or of items that the
   program itself reads, each item may appear once. "all" stands for all words,
   unless it is a word of the list itself. */
typedef struct cli_type {
    cli_kind_t kind;
    const char *metavar;
    uint64_t min, max;
    uint64_t multiple;        /* a size must be a multiple of this number */
    double low, high;         /* the range of a real number */
    const char *const *words; /* the words, and NULL at the end */
    size_t room;
    size_t count_offset;
    /* Reads one item and stores it at index `place` of the program's array. */
    error_t (*read)(const struct cli_parser *parser, const char *item,
                    size_t place);
} cli_type_t;

/* clang-format off */
#define CLI_HEADING {.kind = CLI_KIND_HEADING}
#define CLI_FLAG    {.kind = CLI_KIND_FLAG}
#define CLI_FILE    {.kind = CLI_KIND_TEXT, .metavar = "FILE"}
#define CLI_PLOT    {.kind = CLI_KIND_PLOT, .metavar = "FILE"}
#define CLI_TEXT(metavar_) {.kind = CLI_KIND_TEXT, .metavar = (metavar_)}
#define CLI_COUNT(min_, max_)                                                  \
    {.kind = CLI_KIND_COUNT, .metavar = "N", .min = (min_), .max = (max_)}
#define CLI_SIZE(multiple_, min_, max_)                                        \
    {.kind = CLI_KIND_SIZE, .metavar = "SIZE", .min = (min_), .max = (max_),   \
     .multiple = (multiple_)}
#define CLI_SIZES(multiple_, min_, max_, room_, count_offset_)                 \
    {.kind = CLI_KIND_SIZE, .metavar = "LIST", .min = (min_), .max = (max_),   \
     .multiple = (multiple_), .room = (room_), .count_offset = (count_offset_)}
#define CLI_COUNTS(min_, max_, room_, count_offset_)                           \
    {.kind = CLI_KIND_COUNT, .metavar = "LIST", .min = (min_), .max = (max_),  \
     .room = (room_), .count_offset = (count_offset_)}
#define CLI_REALS(low_, high_, room_, count_offset_)                           \
    {.kind = CLI_KIND_REAL, .metavar = "LIST", .low = (low_), .high = (high_), \
     .room = (room_), .count_offset = (count_offset_)}
#define CLI_ITEMS(read_, room_, count_offset_)                                 \
    {.kind = CLI_KIND_ITEMS, .metavar = "LIST", .read = (read_),               \
     .room = (room_), .count_offset = (count_offset_)}
#define CLI_REAL(metavar_, low_, high_)                                        \
    {.kind = CLI_KIND_REAL, .metavar = (metavar_), .low = (low_),              \
     .high = (high_)}
#define CLI_WORD(metavar_, words_)                                             \
    {.kind = CLI_KIND_WORD, .metavar = (metavar_), .words = (words_)}
#define CLI_WORDS(words_, room_, count_offset_)                                \
    {.kind = CLI_KIND_WORD, .metavar = "LIST", .words = (words_),              \
     .room = (room_), .count_offset = (count_offset_)}
/* clang-format on */

/* One row of the table of options. */
typedef struct cli_option {
    uint64_t commands; /* the set of commands that take the option */
    const char *name;
    int letter;    /* the letter of the option's short form, or 0 */
    size_t offset; /* the offset of the value in the program's struct */
    cli_type_t type;
    /* The default, as a user would write it; NULL: there is none. */
    const char *initial;
    const char *help; /* printed before the type's range and the default */
} cli_option_t;

/* The only command of a program that has no commands. */
enum { CLI_ANY = 1 };

/* ---- parsing ------------------------------------------------------------ */

struct cli_program;

/* A command line that is being parsed. */
typedef struct cli_parser {
    const struct cli_program *program;
    struct argp_state *state;
    void *values;   /* the struct with the values of the program's options */
    uint64_t given; /* bit i is set if option i of the table was given */
} cli_parser_t;

/* A program or one of its commands. Every program also takes --help, --usage
   and --version. */
typedef struct cli_program {
    const char *doc;       /* the text that argp calls `doc` */
    const char *arguments; /* the usage's text for further arguments, or NULL */
    const struct cli_option *options; /* the table of options, at most 64 */
    size_t option_count;
    unsigned command; /* the command whose options are accepted */
    /* The names of a program's commands, and NULL at the end; NULL if there are
       no commands. If there are, the program's struct is a single size_t, which
       gets the index of the given command. */
    const char *const *commands;
    /* Checks options that depend on each other. Called after all options were
       read. May be NULL. */
    error_t (*resolve)(cli_parser_t *parser);
} cli_program_t;

/* How the program continues after parsing. */
typedef enum cli_verdict {
    CLI_RUN,
    CLI_DONE, /* help or version was printed; the program exits with success */
    CLI_BAD   /* an error was printed; the program exits with a failure */
} cli_verdict_t;

/* The exit status after a wrong command line, for programs without ranks. */
enum { CLI_EXIT_USAGE = 2 };

/* Stores the defaults in `values`, and then the values of the command line.
   Prints help and errors only if `speak`. */
cli_verdict_t cli_parse(const cli_program_t *program, int argc, char **argv,
                        bool speak, void *values);

/* Parses the first argument of a program that has several commands. Stores the
   command's index, and replaces the argument by "PROGRAM COMMAND". The command
   then parses the further arguments under that name. */
cli_verdict_t cli_parse_command(const char *program, const char *help,
                                const char *const *commands, int argc,
                                char **argv, bool speak, size_t *index_out);

/* Returns whether the command line has this option. */
bool cli_is_given(const cli_parser_t *parser, const char *name);

/* Reads a value of this type, or a list of values and their number. If the text
   is wrong, prints an error that names `option` and returns EINVAL. */
error_t cli_read(const cli_parser_t *parser, const char *option,
                 const cli_type_t *type, const char *text, void *out,
                 size_t *count_out);

/* Prints an error with the usage. Returns EINVAL. */
error_t cli_refuse(const cli_parser_t *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- values ------------------------------------------------------------- */

/* Reads a number. Returns false if the text has anything else in it. */
bool cli_read_count(const char *text, uint64_t *out);

/* Returns the value of BATON_SEED. Returns 1 if BATON_SEED is unset or no
   number; the library warns of the latter. */
uint64_t cli_default_seed(void);

/* Returns a size in the form that options take: "64", "4K" or "1M". The second
   call after this one overwrites the text. */
const char *cli_format_bytes(uint64_t bytes);

#endif
