#ifndef PROFILER_CMD_H
#define PROFILER_CMD_H

/* The subcommands of thermo-profile. argv[0] is the subcommand's name; each prints what went wrong
 * and returns the exit status (common/base/err.h). */
int cmd_trace(int argc, char **argv);
int cmd_silence(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_predictors(int argc, char **argv);
int cmd_predictors_measure(int argc, char **argv);
int cmd_predictors_import(int argc, char **argv);
int cmd_hardware(int argc, char **argv);
int cmd_import(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_show(int argc, char **argv);

#endif
