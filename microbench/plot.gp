# Draws the CSV file of a command: microseconds against sizes, ranks or the like.
#
#   gnuplot -c plot.gp CSV PICTURE TITLE X Y SERIES [ACTIVE]
#
# X and Y are names of columns. SERIES are the names of the columns that tell the
# series apart. ACTIVE is the name of a column; if it is given, the key has that
# column's mean and the number of ranks.
#
# Up to five series share one plot. More of them would lie on each other, so each
# gets a panel of its own, with the others in grey behind it.
csv = ARG1
abscissa = ARG4
ordinate = ARG5
active = ARG7
load ARG0[:strlen(ARG0) - strlen('plot.gp')].'style.gp'
set datafile separator comma
set datafile columnheaders
set datafile missing NaN

# name: the name of a row's series. size: a size as the commands print it, such as
# 4K or 1M.
series(n) = (n > 1 ? series(n - 1).'/' : '').strcol(word(ARG6, n))
name(row) = series(words(ARG6))
size(v, unit) = v >= 1024 && v % 1024 == 0 && unit < 4 \
    ? size(v / 1024, unit + 1) : sprintf('%d', v).word("'' K M G", unit)

# Collects the names of all series and all values of x, each once. In the plot of a
# series, points of other series are NaN, and so are left out.
add(list, word) = strstrt(' '.list, ' '.word.' ') ? list : list.word.' '
names = ''
values = ''
stats csv using (names = add(names, name(0)), \
    values = add(values, sprintf('%.15g', column(abscissa))), column(abscissa)) nooutput
low = STATS_min
high = STATS_max
array titles[words(names)]
do for [i = 1:words(names)] {
    titles[i] = word(names, i)
    if (strlen(active) > 0) {
        stats csv using (column('ranks')) name 'RANKS' nooutput
        stats csv using (name(0) eq word(names, i) ? column(active) : NaN) nooutput
        titles[i] = titles[i].sprintf(': %.1f of %d ranks', STATS_mean, RANKS_max)
    }
}

many = words(names) > 5
across = words(names) > 9 ? 4 : 3
down = (words(names) + across - 1) / across
height = many ? 60 + 210 * down : 560
if (ARG2[strlen(ARG2) - 3:] eq '.png') {
    set terminal pngcairo size 900,height font 'sans,13'
} else {
    set terminal svg size 900,height font 'sans,13' background '#ffffff'
}
set output ARG2
set logscale y
set logscale x (abscissa eq 'density' ? 10 : 2)
set xrange [low / 1.1:high * 1.1]
set xtics ()
# At most 24 values get a label, in a panel 4.
step = (words(values) + (many ? 3 : 23)) / (many ? 4 : 24)
do for [i = 1:words(values):step] {
    v = word(values, i)
    set xtics add ((abscissa eq 'bytes' ? size(int(v), 1) : v) real(v))
}
y(row, i) = name(row) eq word(names, i) ? column(ordinate) : NaN
if (many) {
    stats csv using (column(ordinate)) nooutput
    set yrange [STATS_min / 1.2:STATS_max * 1.2]
    set multiplot layout down,across title ARG3.': microseconds, by '.abscissa noenhanced \
        margins 0.07,0.98,40.0 / height,1 - 70.0 / height spacing 0.045,60.0 / height
    set format y '10^{%T}'
    unset key
    do for [j = 1:words(names)] {
        set title titles[j] noenhanced offset 0,-0.6
        plot for [i = 1:words(names)] csv using (column(abscissa)):(y(0, i)) \
                smooth unique with lines lw 1.5 lc rgb '#bfbfbf' notitle, \
            csv using (column(abscissa)):(y(0, j)) \
                smooth unique with linespoints lw 2 pt 7 ps 0.6 lc rgb '#0072b2' \
                title titles[j]
    }
    unset multiplot
} else {
    set title ARG3 noenhanced
    set xlabel abscissa
    set ylabel 'microseconds'
    set key outside top center horizontal
    plot for [i = 1:words(names)] csv using (column(abscissa)):(y(0, i)) \
        smooth unique with linespoints lw 2 pt 7 ps 0.6 lc rgb color(i) title titles[i]
}
