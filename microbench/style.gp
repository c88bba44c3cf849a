# The style of all plots: plot.gp and scripts/pictures.sh load it.

# Readers with any kind of colour vision can tell these colours apart.
colors = '#4d4d4d #999999 #0072b2 #e69f00 #009e73 #cc79a7 #56b4e9 #d55e00 #882255'
color(i) = word(colors, 1 + (i - 1) % words(colors))

# A mode has the same colour in each plot: quorum:2 has the colour of quorum.
modes = 'mpi full solo majority quorum any all sparse'
of_mode(name, i) = i == words(modes) || strstrt(name, word(modes, i)) == 1 ? color(i) \
    : of_mode(name, i + 1)
mode_color(name) = of_mode(name, 1)

set grid lt 1 lc rgb '#d9d9d9'
set border 3
set tics nomirror
set key noenhanced Left reverse samplen 1.5
