/* The command `baton-sim fuzz` as a test: see microbench/fuzz_world.h. */
#include "sim_commands.h"

int main(int argc, char **argv)
{
    return sim_command_fuzz(argc, argv);
}
