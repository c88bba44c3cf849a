#!/bin/bash
# Draws the pictures of README.md and docs/ from docs/data/*.csv, which
# scripts/tables.sh --write measures. Only the data of sparse-host were measured by
# baton-bench sparse, on another machine. Two pictures are drawn elsewhere:
# scripts/matrix.sh draws matrix.svg, and examples/python/own_collective.py chain.svg.
#
#   scripts/pictures.sh [NAME ...]      all of them, if none is named
set -euo pipefail
case ${1-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)

# gnuplot draws in black, white, grey and blue. Browsers with dark pages use these
# colours instead.
dark='<style>@media (prefers-color-scheme: dark) {
rect[fill="#ffffff"] { fill: #0d1117 }
[fill="black"] { fill: #e6edf3 } [color="black"] { color: #e6edf3 }
[stroke="black"] { stroke: #e6edf3 }
[stroke="rgb(217, 217, 217)"] { stroke: #30363d }
[stroke="rgb( 77,  77,  77)"] { stroke: #c9d1d9 }
[fill="rgb( 77,  77,  77)"] { fill: #c9d1d9 }
[stroke="rgb(  0, 114, 178)"] { stroke: #3b9fd8 } [color="rgb(  0, 114, 178)"] { color: #3b9fd8 }
[fill="rgb(  0, 114, 178)"] { fill: #3b9fd8 } [fill="rgb(0,114,178)"] { fill: #3b9fd8 }
}</style>'

# picture NAME WIDTH HEIGHT: runs the gnuplot commands of its standard input, in
# the style of all plots. csv is the name of the picture's data there.
picture() {
    {
        echo "set terminal svg size $2,$3 font 'sans,13' background '#ffffff'"
        echo "load '$root/microbench/style.gp'"
        echo "set datafile separator comma"
        echo "set datafile columnheaders"
        echo "set datafile missing NaN"
        echo "csv = '$root/docs/data/$1.csv'"
        cat
    } | gnuplot - | sed "s/[[:blank:]]*\$//; s/<title>Gnuplot/<title>$1/; /^<desc>/c\\
${dark//$'\n'/ }" >"$root/docs/$1.svg"
}

# The style of pictures with bars. Each panel has a bar for each system.
bars='
set style fill solid
set boxwidth 0.8
set border 1
unset key
unset grid
unset ytics
set xtics scale 0 noenhanced font ",10"
set xtics ()
do for [i = 1:words(systems)] { set xtics add (word(systems, i) i) }
set xrange [0.4:words(systems) + 0.6]
'

skew() {
    picture skew 840 260 <<END
systems = 'mpi majority quorum:2 solo'
$bars
set multiplot layout 1,3 margins 0.03,0.98,0.12,0.76 spacing 0.05,0 \
    title "Mean latency of an all-reduce of 4 KiB, in ms, if ranks arrive 1 ms apart"
do for [ranks in '4 8 32'] {
    set title ranks.' ranks' offset 0,-0.5
    y(i) = strcol('ranks') eq ranks && column('bytes') == 4096 \
        && strcol('system') eq word(systems, i) ? column('mean_us') / 1000 : NaN
    set yrange [0:0.6 * ranks]
    plot for [i = 1:4] csv using (i):(y(i)) with boxes lc rgb mode_color(word(systems, i)), \
        for [i = 1:4] csv using (i):(y(i)):(sprintf('%.2g', y(i))) with labels offset 0,0.6
}
unset multiplot
END
}

late() {
    picture late 840 260 <<END
systems = 'mpi full majority quorum:2 solo'
$bars
set multiplot layout 1,3 margins 0.03,0.98,0.12,0.76 spacing 0.05,0 \
    title "Milliseconds a step, by which of 4 ranks is late"
cases = '"each rank in turn 30 ms" "always the same 60 ms" "the same that skips"'
set yrange [0:68]
do for [j = 1:3] {
    set title word(cases, j) offset 0,-0.5
    y(i) = strcol('late') eq word(cases, j) && strcol('system') eq word(systems, i) \
        ? column('ms') : NaN
    plot for [i = 1:5] csv using (i):(y(i)) with boxes lc rgb mode_color(word(systems, i)), \
        for [i = 1:5] csv using (i):(y(i)):(sprintf('%.3g', y(i))) with labels offset 0,0.6
}
unset multiplot
END
}

allreduce() {
    picture allreduce 840 480 <<END
set multiplot layout 2,3 margins 0.05,0.98,0.08,0.86 spacing 0.05,0.16 \
    title "All-reduce, start and wait: time of the fastest of MPI over that of Baton"
set logscale x 2
set logscale y 2
set xrange [6:22e6]
set yrange [0.5:32]
set xtics ('8 B' 8, '1K' 1024, '16K' 16384, '256K' 262144, '4M' 4194304)
set key top right
places = 'out in'
names = '"out of place" "in place"'
array ranks[6] = [2, 4, 8, 16, 2, 4]
do for [j = 1:6] {
    hosts = j < 5 ? 1 : 2
    set title sprintf(hosts == 1 ? '%d ranks' : '%d ranks on 2 hosts', ranks[j]) offset 0,-0.6
    y(i) = column('ranks') == ranks[j] && column('hosts') == hosts \
        && strcol('way') eq 'wait' && strcol('place') eq word(places, i) \
        ? column('ratio_to_best_mpi') : NaN
    plot 1 with lines lw 2 lc rgb '#4d4d4d' notitle, \
        for [i = 1:2] csv using (column('bytes')):(y(i)) smooth unique \
        with linespoints lw 2 pt 7 ps 0.5 lc rgb color(2 + i) title word(names, i)
    unset key
}
unset multiplot
END
}

quorum() {
    picture quorum 640 360 <<END
set xlabel 'q, of 32 ranks that arrive 1 ms apart'
set ylabel 'mean latency, ms'
set key top left
set xrange [0:33]
set yrange [0:17]
plot x * (x - 1) / 64 with lines lw 2 dt 2 lc rgb color(1) title 'limit: q (q - 1) / 2 P ms', \
    csv using (column('q')):(column('latency_us') / 1000) \
    with points pt 7 lc rgb mode_color('quorum') title 'QUORUM(q), simulated'
END
}

modes() {
    picture modes 840 360 <<END
set multiplot layout 1,3 margins 0.06,0.98,0.18,0.8 spacing 0.03,0 \
    title "FULL's mean latency over the mode's"
set logscale x 2
set logscale y
set xrange [28:4700]
set yrange [1:1e5]
set xtics (32, 128, 512, 2048)
set format y '10^{%T}'
set xlabel 'ranks'
skews = 'normal:1000:300 exponential:1000 pareto:300:1.5'
titles = '"normal, 1000 ± 300 us" "exponential, mean 1000 us" "Pareto, from 300 us, shape 1.5"'
shown = 'solo any quorum majority'
names = '"solo" "any of 8" "quorum of half" "majority"'
do for [j = 1:3] {
    set title word(titles, j) offset 0,-0.5
    if (j == 2) { set format y ''; set key top left } else { unset key }
    y(i) = strcol('skew') eq word(skews, j) && strcol('mode') eq word(shown, i) \
        ? column('full_over_this') : NaN
    plot for [i = 1:4] csv using (column('ranks')):(y(i)) smooth unique \
        with linespoints lw 2 pt 7 ps 0.6 lc rgb mode_color(word(shown, i)) title word(names, i)
}
unset multiplot
END
}

torch-modes() {
    picture torch-modes 840 340 <<END
set multiplot layout 1,2 margins 0.09,0.98,0.17,0.95 spacing 0.08,0
set xrange [0:*]
set yrange [80:100]
set ylabel 'test images classified correctly, %'
set key bottom right
shown = 'full majority quorum:2 solo sparse:0.01'
do for [axis in 'steps seconds'] {
    set xlabel axis
    y(i) = strcol('mode') eq word(shown, i) ? column('accuracy') : NaN
    plot for [i = 1:4] csv using (column(axis)):(y(i)) smooth unique \
        with lines lw 2 lc rgb mode_color(word(shown, i)) title word(shown, i), \
        csv using (column(axis)):(y(5)) smooth unique \
        with lines lw 2 dt 2 lc rgb mode_color('sparse') title word(shown, 5)
    unset key
    unset ylabel
}
unset multiplot
END
}

# legend: writes the words of `names`, in their colours, above all panels. The plots
# unset these labels after the first panel, since all panels are under one legend.
legend='
do for [i = 1:words(names)] {
    set label i word(names, i) at screen 0.1 + 0.8 * (i - 0.5) / words(names),legend_y \
        center tc rgb mine(i)
}
unset key
'

sparse-links() {
    picture sparse-links 840 500 <<END
set multiplot layout 2,3 margins 0.06,0.98,0.07,0.82 spacing 0.05,0.14 \
    title "Milliseconds a step of 15 Mi elements, by the number of ranks, if a message takes 50 us"
shown = "dense topka gtopk topkdsa spardl auto"
names = "dense 'TopkA, RedSync' gTopk 'TopkDSA, Ok-Topk' SparDL automatic"
mine(i) = word("#4d4d4d #cc79a7 #56b4e9 #009e73 #0072b2 #d55e00", i)
legend_y = 0.92
$legend
set logscale x 2
set logscale y
set format y '10^{%T}'
set xrange [7:1200]
set xtics (8, 32, 128, 512)
do for [density in '0.01 0.001'] {
    do for [gbit in '1 10 100'] {
        set title sprintf('%g %%, ', density * 100).gbit.' Gbit/s' offset 0,-0.6
        y(i) = strcol('density') eq density && strcol('gbit') eq gbit \
            && column('alpha_us') == 50 && strcol('algorithm') eq word(shown, i) \
            ? column('ms') : NaN
        plot for [i = 1:5] csv using (column('ranks')):(y(i)) smooth unique \
            with linespoints lw 2 pt 7 ps 0.4 lc rgb mine(i), \
            csv using (column('ranks')):(y(6)) smooth unique \
            with lines lw 2 dt 2 lc rgb mine(6)
        unset label
    }
}
unset multiplot
END
}

sparse-host() {
    picture sparse-host 840 600 <<END
set multiplot layout 4,4 margins 0.06,0.98,0.05,0.87 spacing 0.04,0.06 \
    title "Time of a sparse step over that of a dense one, by the density in %"
shown = "topka topkdsa spardl"
names = "TopkA TopkDSA SparDL"
mine(i) = word("#cc79a7 #009e73 #0072b2", i)
legend_y = 0.94
$legend
set logscale x
set logscale y 2
set xrange [0.08:6.3]
set yrange [0.3:6.5]
set ytics (0.5, 1, 2, 4)
do for [mib in '1 4 16 64'] {
    do for [ranks in '2 4 8 14'] {
        if (mib == 64) { set xtics ('0.1' 0.1, '1' 1, '5' 5) }
        else { set xtics ('' 0.1, '' 1, '' 5) }
        set title ranks.' ranks, '.mib.' MiB' offset 0,-0.8
        y(i) = strcol('ranks') eq ranks && strcol('mib') eq mib \
            && strcol('algorithm') eq word(shown, i) ? column('over_dense') : NaN
        plot 1 with lines lw 2 lc rgb '#4d4d4d', \
            for [i = 1:3] csv using (column('density_percent')):(y(i)) smooth unique \
            with linespoints lw 2 pt 7 ps 0.4 lc rgb mine(i)
        unset label
    }
}
unset multiplot
END
}

# shellcheck disable=SC2048
for name in ${*:-skew late allreduce quorum modes torch-modes sparse-links sparse-host}; do
    "$name"
done
