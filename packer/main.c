/* thermo-pack: lays a model's weights out as a plan says, in temperature-sorted neuron clusters. */
#include "common/base/version.h"
#include "common/cli/opt.h"
#include "packer/cmd.h"

int main(int argc, char **argv)
{
    static const struct opt_command commands[] = {
        { "pack", cmd_pack, "write a packed model from a GGUF, its trace and a plan" },
        { "mtp", cmd_mtp, "pack a model's layer for multi-token prediction, for thermo-run --guess mtp" },
        { "inspect", cmd_inspect, "show what a packed model holds" },
        { "verify", cmd_verify, "check every checksum of a packed model" },
        { 0 },
    };
    return opt_main("thermo-pack", "Lay a model out in neuron clusters, hot to cold, as a plan says.", commands,
                    "packed model revision " VERSION_TEXT(PACK_REVISION) ", plan revision " VERSION_TEXT(PLAN_REVISION)
                    ", trace revision " VERSION_TEXT(TRACE_REVISION), argc, argv);
}
