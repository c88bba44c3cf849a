# Draws the CSV file of a command: microseconds against sizes, ranks or the like.
#
#   gnuplot -c plot.gp CSV PICTURE TITLE X Y SERIES [ACTIVE]
#
# X and Y are names of columns. SERIES are the names of the columns that tell the
# series apart. ACTIVE is the name of a column; if it is given, the key has that
# column's mean and the number of ranks.
csv = ARG1
abscissa = ARG4
ordinate = ARG5
set datafile separator comma
set datafile columnheaders
set datafile missing NaN

# Readers with any kind of colour vision can tell the colours apart.
colors = '#4d4d4d #a6a6a6 #0072b2 #e69f00 #009e73 #cc79a7 #56b4e9 #d55e00 #f0e442'

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
    if (strlen(ARG7) > 0) {
        stats csv using (column('ranks')) name 'RANKS' nooutput
        stats csv using (name(0) eq word(names, i) ? column(ARG7) : NaN) nooutput
        titles[i] = titles[i].sprintf(': %.1f of %d ranks', STATS_mean, RANKS_max)
    }
}

if (ARG2[strlen(ARG2) - 3:] eq '.png') {
    set terminal pngcairo size 900,560 font 'sans,13'
} else {
    set terminal svg size 900,560 font 'sans,13' background '#ffffff'
}
set output ARG2
set title ARG3 noenhanced
set xlabel abscissa
set ylabel 'microseconds'
set logscale y
set logscale x (abscissa eq 'density' ? 10 : 2)
set xrange [low / 1.1:high * 1.1]
set grid lt 1 lc rgb '#d9d9d9'
set border 3
set ytics nomirror
set xtics nomirror
set xtics ()
# At most 24 values get a label.
step = (words(values) + 23) / 24
do for [i = 1:words(values):step] {
    v = word(values, i)
    set xtics add ((abscissa eq 'bytes' ? size(int(v), 1) : v) real(v))
}
set key outside top center horizontal noenhanced Left reverse samplen 1.5
plot for [i = 1:words(names)] csv \
    using (column(abscissa)):(name(0) eq word(names, i) ? column(ordinate) : NaN) \
    smooth unique with linespoints lw 2 pt 7 ps 0.6 \
    lc rgb word(colors, 1 + (i - 1) % 9) title titles[i]
