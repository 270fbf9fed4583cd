#ifndef RUNTIME_CMD_H
#define RUNTIME_CMD_H

/* Subcommands: argv[0] is the subcommand's name; the exit status is returned. */
int cmd_generate(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_engines(int argc, char **argv);

#endif
