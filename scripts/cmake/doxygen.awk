# Prepares a public header for Doxygen, which reads only comments that begin with
# "/**", and those after a line's code only if they begin with "/**<". The headers'
# own comments are plain. A heading, "/* ---- title ----", is removed. Declarations
# without a blank line between them share the comment before the first one.

function put(line) {
    if (line ~ /\/\*/) inside = 1
    if (line ~ /\*\//) inside = 0
    print line
}

inside {
    if (shares) shared = shared "\n" $0
    put($0)
    next
}

{ shares = 0 }
FNR == 1 {
    sub(/\/\*/, "/** @file\n  ")
    put($0)
    next
}
/^\/\* ---- .*\*\/$/ { next }
/^ *\/\*/ {
    if (!sub(/\/\* ---- .*/, "/**")) sub(/\/\*/, "/**")
    shares = /^\//
    if (shares) shared = $0
    commented = 1
    put($0)
    next
}
/^extern "C"/ {
    print
    next
}
/^$/ { shared = "" }
/^[a-zA-Z]/ && !within {
    if (!commented && shared != "") print shared
    within = 1
}
{
    depth += gsub(/{/, "{") - gsub(/}/, "}")
    if (depth == 0 && /;/) within = 0
    commented = 0
    sub(/\/\*/, "/**<")
    put($0)
}
