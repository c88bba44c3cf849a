/* baton-sim: collectives on any number of ranks in virtual time. See
   `baton-sim --help`. */
#include "common/cli.h"
#include "sim/commands.h"
#include "sim/sweep.h"
#include <stdio.h>
#include <string.h>

static const char doc[] =
    "Simulates collectives: the library's own schedules, on any number of "
    "ranks, in virtual time."
    "\vOne process, no MPI; the same seed gives the same run. Each command "
    "takes --help."
    /* The list of commands goes between these two paragraphs. */
    "\n\nExample: baton-sim allreduce --algorithm ring --ranks 1024 --bytes "
    "100M --alpha-us 1.5 --gbit 100";

static error_t find(cli_parser_t *parser, const char *word)
{
    const char *names[SIM_COMMAND_COUNT + 1] = {NULL};
    for (size_t i = 0; i < SIM_COMMAND_COUNT; i++) {
        names[i] = sim_commands[i].name;
    }
    if (strcmp(word, "fuzz") == 0) {
        return cli_refuse(parser,
                          "fuzz is a separate program, baton-fuzz, which "
                          "is built with the tests");
    }
    const cli_type_t type = CLI_WORD(NULL, names);
    size_t index = 0;
    error_t error = cli_read(parser, "COMMAND", &type, word, &index, NULL);
    if (error == 0) {
        *(const sim_command_t **)parser->values = &sim_commands[index];
    }
    return error;
}

/* Inserts the list of commands before the last text of the help. */
static char *add_commands(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC) {
        return (char *)(uintptr_t)text;
    }
    char *help = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&help, &bytes);
    if (stream == NULL) {
        return NULL;
    }
    (void)fputs("Commands:\n", stream);
    for (size_t i = 0; i < SIM_COMMAND_COUNT; i++) {
        (void)fprintf(stream, "  %-10s %s\n", sim_commands[i].name,
                      sim_commands[i].summary);
    }
    (void)fprintf(stream, "\n%s", text);
    (void)fclose(stream);
    return help;
}

int main(int argc, char **argv)
{
    static const cli_program_t program = {
        .doc = doc,
        .arguments = "COMMAND [OPTION...]",
        .take_argument = find,
        .filter_help = add_commands,
    };
    /* The command parses everything after the first word. */
    const sim_command_t *command = NULL;
    cli_verdict_t verdict =
        cli_parse(&program, argc < 2 ? argc : 2, argv, true, &command);
    if (verdict != CLI_RUN) {
        return verdict == CLI_DONE ? 0 : CLI_EXIT_USAGE;
    }
    char name[64];
    (void)snprintf(name, sizeof(name), "baton-sim %s", command->name);
    argv[1] = name;
    return sim_sweep(command, argc - 1, argv + 1);
}
