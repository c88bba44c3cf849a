#include "common/steal.h"
#include <stdio.h>
#include <string.h>

/* user nice system idle iowait irq softirq steal; what follows, guests' time,
   is in user and nice already. */
enum { FIELDS = 8, STEAL = 7 };

steal_t steal_parse(const char *line)
{
    double field[FIELDS];
    steal_t reading = {0, 0};
    /* A blank in scanf's format would match none, and "cpu0" pass for "cpu". */
    if (strncmp(line, "cpu ", 4) != 0 ||
        sscanf(line, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &field[0],
               &field[1], &field[2], &field[3], &field[4], &field[5], &field[6],
               &field[7]) != FIELDS) {
        return reading;
    }
    for (int i = 0; i < FIELDS; i++) {
        reading.total += field[i];
    }
    reading.stolen = field[STEAL];
    return reading;
}

steal_t steal_read(void)
{
    char line[256] = "";
    FILE *file = fopen("/proc/stat", "r");
    if (file != NULL) {
        if (fgets(line, sizeof(line), file) == NULL) {
            line[0] = '\0';
        }
        (void)fclose(file);
    }
    return steal_parse(line);
}

double steal_share(steal_t before, steal_t after)
{
    double total = after.total - before.total;
    return total > 0 ? (after.stolen - before.stolen) / total : 0;
}
