#include "common/version.h"

#include <stdio.h>

int main(void)
{
    puts("thermo-plan " THERMO_VERSION);
    return 2;
}
