/* thermocline: one model from its file to answers, by the programs that do it, and what they made. */
#include "common/cli/opt.h"
#include "driver/cmd.h"

#include <string.h>

#define MOST_WORDS 4096

/* A line that begins with no command is one of `run`. */
int main(int argc, char **argv)
{
    static const struct opt_command commands[] = {
        { "run", cmd_run, "answer at a prompt, or -p TEXT: what a line without a command does" },
        { "serve", cmd_serve, "answer requests by HTTP, with thermo-serve" },
        { "import", cmd_import, "make a GGUF file of a published model's folder, by llama.cpp's converter" },
        { "list", cmd_list, "list what the cache holds" },
        { "show", cmd_show, "show what it holds of a model" },
        { "remove", cmd_remove, "remove that" },
        { "du", cmd_du, "how much of the disk it takes" },
        { 0 },
    };
    static char run[] = "run";
    static char *words[MOST_WORDS + 2];
    int is_run = argc > 1 && argc < MOST_WORDS && strcmp(argv[1], "help") && strcmp(argv[1], "-h") && strcmp(argv[1], "-V") &&
        strncmp(argv[1], "--help", 6) && strcmp(argv[1], "--version");
    for (const struct opt_command *c = commands; is_run && c->name; c++)
        is_run = strcmp(argv[1], c->name) != 0;
    if (is_run) {
        words[0] = argv[0], words[1] = run;
        memcpy(words + 2, argv + 1, (size_t)(argc - 1) * sizeof *words);
        argv = words, argc++;
    }
    return opt_main("thermocline", "A model from its GGUF file to answers, within a memory limit: 'thermocline MODEL.gguf' does what has "
                    "to be done and talks. What it makes is kept in a cache.", commands, NULL, argc, argv);
}
