#!/bin/sh
# Shows how far a script is that runs for minutes. Scripts source this file, and call
#
#   so_far DONE ALL [UNIT]    prints "3 of 9 done, about 240 s left", by the time
#                             since this file was sourced
#   show TEXT                 a line on standard error, if that is a terminal,
#                             in place of the last one; without TEXT removes it
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
progress_began=$(date +%s)

so_far() {
    printf '%d of %d%s done' "$1" "$2" "${3:+ $3}"
    [ "$1" -eq 0 ] || printf ', about %d s left' \
        $((($(date +%s) - progress_began) * ($2 - $1) / $1))
}

show() {
    [ ! -t 2 ] || printf '\r\033[K%s' "${1-}" >&2
}
