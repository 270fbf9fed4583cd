#include "common/version.h"

#include <stdio.h>

int main(void)
{
    puts("thermo-profile " THERMO_VERSION);
    return 2;
}
