#ifndef DRIVER_CMD_H
#define DRIVER_CMD_H

/* Subcommands: argv[0] is the subcommand's name; the exit status is returned. */
int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_remove(int argc, char **argv);
int cmd_du(int argc, char **argv);
int cmd_import(int argc, char **argv);

#endif
