/* thermo-profile: what a model's neurons do and what a device can do, measured or entered. */
#include "common/base/version.h"
#include "common/cli/opt.h"
#include "profiler/cmd.h"

int main(int argc, char **argv)
{
    static const struct opt_command commands[] = {
        { "trace", cmd_trace, "run a model over prompts and record which neurons fire" },
        { "silence", cmd_silence, "state what silencing neurons by thresholds costs" },
        { "merge", cmd_merge, "merge the traces of all shards of a run" },
        { "predictors", cmd_predictors, "make predictors of active neurons, from a trace" },
        { "predictors-measure", cmd_predictors_measure, "measure the predictors that a trace holds" },
        { "predictors-import", cmd_predictors_import, "put the predictors of a PowerInfer file into its trace" },
        { "hardware", cmd_hardware, "measure this machine into a hardware database" },
        { "import", cmd_import, "enter figures of devices from CSV" },
        { "export", cmd_export, "write devices as the CSV that import reads" },
        { "models", cmd_models, "list the architectures and types that all programs understand" },
        { "show", cmd_show, "show what a trace or a hardware database holds" },
        { 0 },
    };
    return opt_main(
        "thermo-profile", "Measure what the planner needs: activations of a model, speeds of a device.", commands,
        "trace revision " VERSION_TEXT(TRACE_REVISION) ", hardware database revision " VERSION_TEXT(HWDB_REVISION), argc, argv);
}
