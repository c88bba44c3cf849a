/* A simulation as a row of the table. Each command prints some of the columns
   and writes some to files. */
#ifndef MICROBENCH_SIM_ROW_H
#define MICROBENCH_SIM_ROW_H

#include "common/table.h"
#include "sim/command.h"

typedef enum sim_column {
    SIM_NAME, /* of the variant */
    SIM_RANKS,
    SIM_BYTES,
    SIM_EPOCHS,
    SIM_MEAN, /* of an epoch's time */
    SIM_LOW,
    SIM_HIGH,
    SIM_FORMULA,
    SIM_DIFFERENCE,
    SIM_LATENCY,
    SIM_MEDIAN,
    SIM_P99,
    SIM_RATIO, /* to full */
    SIM_PAPER,
    SIM_ACTIVE,
    SIM_ERROR,
    SIM_EXPECTED,
    SIM_MESSAGES,
    SIM_BUILD,
    SIM_RUN,
    SIM_RATE,
    /* Of sparse all-reduces. */
    SIM_COUNT,
    SIM_DENSITY,
    SIM_SELECTED, /* k */
    SIM_CHOSEN,   /* the algorithm in force */
    SIM_TEAMS,
    SIM_EXCHANGE,
    SIM_ROUNDS,
    SIM_ROUNDS_FORMULA,
    SIM_SENT, /* messages of the rank that sends most, in a step */
    SIM_SENT_FORMULA,
    SIM_ENTRIES, /* its bytes in entries */
    SIM_ENTRIES_FORMULA,
    SIM_NNZ,
    SIM_OVER_SPARDL,
    SIM_PAPER_SPARSE,
    SIM_KIND, /* of the simulation */
    SIM_COLUMN_COUNT
} sim_column_t;

#define SIM_COLUMN(name) (UINT64_C(1) << SIM_##name)

/* Fills in the columns: the sets `shown` and `written` say which are printed
   and which are written to files. `compared` is the heading of the variants. */
void sim_row_columns(sim_columns_t shown, sim_columns_t written,
                     const char *compared,
                     table_column_t columns[SIM_COLUMN_COUNT]);

/* Fills in the cells of the case at `place` in the list of variants. `results`
   are those of this value of the sweep, up to that place. */
void sim_row_fill(const sim_case_t *c, const sim_result_t *results,
                  size_t place, table_cell_t cells[SIM_COLUMN_COUNT]);

#endif
