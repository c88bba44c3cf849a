#!/bin/sh
# Tests baton-info as a user runs it: the table of choices, a calibration file
# that is written and read, and wrong arguments.
#
#   info_command.sh BATON_INFO MPIRUN...
. "$(dirname "$0")/../support/command.sh"
info=$1
shift

# says PATTERN COMMAND...: expects that the command succeeds, and that a line of
# its output matches.
says() {
    pattern=$1
    shift
    "$@" >out 2>err || complain "failed: $*"
    grep -Eq -- "$pattern" out || complain "no line like '$pattern': $*"
}

# refuses PATTERN COMMAND...: expects that the command fails, and that a line of
# its error matches.
refuses() {
    pattern=$1
    shift
    "$@" >out 2>err && complain "succeeded: $*"
    grep -Eq -- "$pattern" err || complain "no complaint like '$pattern': $*"
}

says '^allreduce$' "$info" --choices 8
says 'up to +[0-9]+ bytes +recursive_doubling$' "$info" --choices 8 --hosts 2
says 'any size +dissemination$' "$info" --choices 1
refuses '--choices' "$info" --choices 0
refuses 'there is 1 rank, must be 2 or more' "$info" --calibrate costs

# The standard error of a rank of Open MPI is a pipe, but mpirun's may be a
# terminal.
if script -qec true /dev/null >/dev/null 2>&1 </dev/null &&
    "$1" --version | grep -q 'Open MPI'; then
    says '^inside +alpha +[0-9.]+ us' \
        script -qec "$* -np 3 $info --calibrate costs" /dev/null
    grep -q 'algorithms: [0-9]* s, [0-9]* % done, about [0-9]* s left' out ||
        complain "no progress of --calibrate"
else
    says '^inside +alpha +[0-9.]+ us' "$@" -np 3 "$info" --calibrate costs
fi
grep -q '^baton-calibration 1$' costs || complain "no calibration file"
says '^allreduce$' env BATON_CALIBRATION=costs "$info" --choices 8

sed 's/^machine .*/machine PDP-11/' costs >other
refuses 'BATON_CALIBRATION: .* made on another machine, "PDP-11"' \
    env BATON_CALIBRATION=other "$info" --choices 8
[ "$(grep -c '^machine ' costs)" -eq 1 ] || complain "one model, not one machine"
grep '^machine ' costs >>other # as where a rank on it calibrates, too
says '^allreduce$' env BATON_CALIBRATION=other "$info" --choices 8
# shellcheck disable=SC2016
refuses "ranks have different options, or different costs in BATON_CALIBRATION" "$@" -np 2 sh -c '
    [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" -ne 0 ] || export BATON_CALIBRATION=other
    exec "$0" --calibrate new' "$info"
says 'any size +ring$' env BATON_ALLREDUCE=ring "$info" --choices 8
exit $fail
