#ifndef PACKER_CMD_H
#define PACKER_CMD_H

/* Subcommands: argv[0] is the subcommand's name; the exit status is returned. */
int cmd_pack(int argc, char **argv);
int cmd_mtp(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_verify(int argc, char **argv);

#endif
