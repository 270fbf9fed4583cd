/* thermo-run: runs a packed model as its plan says, within a ceiling of memory. */
#include "common/base/version.h"
#include "common/cli/opt.h"
#include "common/plan/plan.h"

#include "runtime/cmd.h"
#include "common/base/machine.h"

#ifdef NO_EDIT
#define EDITOR "none"
#else
#define EDITOR "libedit"
#endif
int main(int argc, char **argv)
{
    static const struct opt_command commands[] = {
        { "generate", cmd_generate, "continue a prompt" },
        { "chat", cmd_chat, "talk with a model that has a chat template" },
        { "serve", cmd_serve, "answer requests, JSON lines on standard input and output" },
        { "bench", cmd_bench, "measure prompt and generation speed" },
        { "perplexity", cmd_perplexity, "perplexity over a text or token ids" },
        { "logits", cmd_logits, "logits of the next token, as JSON" },
        { "engines", cmd_engines, "list accelerators" },
        { 0 },
    };
    machine_tune();
    return opt_main("thermo-run", "Run a packed model within a memory limit.", commands,
                    "packed model revision " VERSION_TEXT(PACK_REVISION) ", plan revision " VERSION_TEXT(PLAN_REVISION)
                    ", line editor " EDITOR, argc, argv);
}
