#include "common/version.h"

#include <stdio.h>

int main(void)
{
    puts("thermo-pack " THERMO_VERSION);
    return 2;
}
