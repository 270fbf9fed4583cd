/* Fuzz entry: any bytes as telemetry. What is read can be held against a prediction without nonsense. */
#include "planner/check/calibrate.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct telemetry t = { 0 };
    struct err e;
    if (telemetry_parse((const char *)data, size, "fuzz", &t, &e) == 0)
        for (int i = 0; i < t.n; i++) {
            double out[CALIBRATE_TERMS];
            calibrate_measured(&t.run[i], out);
            if (!(out[CALIBRATE_STEP] >= 0) || !isfinite(out[CALIBRATE_STEP]) || out[CALIBRATE_FFN] < 0 ||
                !(t.run[i].tokens >= 1))
                abort();
        }
    telemetry_done(&t);
    return 0;
}
