#include "common/version.h"

#include <stdio.h>

int main(void)
{
    puts("thermo-run " THERMO_VERSION);
    return 2;
}
