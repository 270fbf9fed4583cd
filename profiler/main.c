/* thermo-profile: everything that is measured or entered before planning. */
#include "common/opt.h"
#include "common/version.h"
#include "profiler/cmd.h"

int main(int argc, char **argv)
{
    static const struct opt_command commands[] = {
        { "hardware", cmd_hardware, "measure this machine into a hardware database" },
        { "import", cmd_import, "enter published figures of devices from CSV" },
        { 0 },
    };
    return opt_main("thermo-profile", "Measures models and devices for the planner.", commands, "", argc, argv);
}
