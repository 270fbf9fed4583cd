/* thermo-plan: decides, from traces and hardware figures, how a model runs within a memory limit. */
#include "common/base/version.h"
#include "common/cli/opt.h"
#include "common/kernels/kernels.h"
#include "planner/cmd.h"
#include "planner/heap.h"
#include "planner/solve/solve_z3.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    static const struct opt_command commands[] = {
        { "solve", cmd_solve, "find the fastest plan within memory limits" },
        { "check", cmd_check, "verify a plan from the equations alone; compare plans" },
        { "explain", cmd_explain, "every equation of a plan with its numbers, and what binds" },
        { "sweep", cmd_sweep, "predicted speed over memory, as CSV and SVG" },
        { "report", cmd_report, "a plan as one HTML page: curves, times, memory, measured beside predicted" },
        { "calibrate", cmd_calibrate, "measured against predicted, per term; corrections for the hardware database" },
        { 0 },
    };
    char version[160], solver[64];
    heap_keep();
    kernels_init(0); /* plain ones: which forms of activations a type has is the same in all tiers */
    solve_z3_version(solver, sizeof solver);
    snprintf(version, sizeof version, "plan revision %s, trace revision %s, hardware revision %s, %s",
             VERSION_TEXT(PLAN_REVISION), VERSION_TEXT(TRACE_REVISION), VERSION_TEXT(HWDB_REVISION), solver);
    return opt_main("thermo-plan", "Decide, from traces and hardware figures, how a model runs within a memory "
                                   "limit.",
                    commands, version, argc, argv);
}
