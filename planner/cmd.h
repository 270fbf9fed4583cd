#ifndef PLANNER_CMD_H
#define PLANNER_CMD_H

/* The subcommands of thermo-plan. argv[0] is the subcommand's name; each prints what went wrong
 * and returns the exit status (common/base/err.h). */
int cmd_solve(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);
int cmd_report(int argc, char **argv);

#endif
